"""Where an export grows until it is complete, and what one that was stopped has finished.

Beside the output `rows/` lies `.rows.unfinished/`, which one process holds at a time:

begun.json          what is exported; another export does not continue this one
rows/               output files
receipts/STEM.json  the files of one finished stem, which are on the disk
partitions/         rows that were read and are in no file yet; a stop costs them
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.errors import OutputConflictError
from tokenmill.export.finished import difference
from tokenmill.store.canonical import canonical_json
from tokenmill.store.exports import ExportManifest
from tokenmill.store.files import (
    exchange,
    locked_folder,
    remove_folder,
    rename_flushed,
    write_atomically,
)
from tokenmill.store.manifest import FileEntry


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the bytes of an export."""

    manifest: ExportManifest
    """Without its files."""
    rows_per_file: dict[str, int]
    """By the length of rows."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The work folder of an export, held by this process."""

    folder: Path

    @property
    def rows(self) -> Path:
        """The folder that becomes the output."""
        return self.folder / "rows"

    @property
    def partitions(self) -> Path:
        """Where rows wait for their file."""
        return self.folder / "partitions"

    def begin(self, begun: Begun, *, overwrite: bool) -> None:
        """Keep what an earlier attempt at the same export has finished, and make room otherwise.

        Raises:
            OutputConflictError: another export was begun here.
        """
        remove_folder(self.partitions)
        found = self._begun()
        if found != begun:
            if found is not None and not overwrite:
                raise OutputConflictError(
                    "another export to the output folder was begun and stopped",
                    where=str(self.folder),
                    why=difference(found.manifest, begun.manifest) or "its files have other sizes",
                    hint="run its command again, choose another folder, or give --overwrite",
                )
            for folder in (self.folder / "receipts", self.rows):
                remove_folder(folder)
            write_atomically(self._begun_path, canonical_json(begun))
        for folder in (self.folder / "receipts", self.rows):
            folder.mkdir(exist_ok=True)

    def finished(self, stem: str) -> list[FileEntry] | None:
        """The files of a stem, if they are complete."""
        try:
            entries = msgspec.json.decode(self._receipt(stem).read_bytes(), type=list[FileEntry])
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        are_there = all(
            entry.name.startswith(f"{stem}.")
            and "/" not in entry.name
            and (path := self.rows / entry.name).is_file()
            and path.stat().st_size == entry.bytes
            for entry in entries
        )
        return entries if are_there else None

    def clear(self, stem: str) -> None:
        """Remove what an attempt that was killed has left of a stem's files."""
        for path in self.rows.glob(f"{stem}.*"):
            path.unlink()

    def finish(self, stem: str, entries: list[FileEntry]) -> None:
        """Note that the files of a stem are on the disk."""
        write_atomically(self._receipt(stem), canonical_json(entries))

    def num_finished(self) -> int:
        """How many files a next attempt finds."""
        receipts = [path.stem for path in (self.folder / "receipts").glob("*.json")]
        return sum(len(self.finished(stem) or ()) for stem in receipts)

    def take_name(self, out: Path) -> None:
        """Become the output; what has the name already is removed with this folder."""
        if out.exists():
            if exchange(self.rows, out):
                return
            os.replace(out, self.folder / "replaced")
        rename_flushed(self.rows, out)

    @property
    def _begun_path(self) -> Path:
        return self.folder / "begun.json"

    def _begun(self) -> Begun | None:
        try:
            return msgspec.json.decode(self._begun_path.read_bytes(), type=Begun)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def _receipt(self, stem: str) -> Path:
        return self.folder / "receipts" / f"{stem}.json"


@contextlib.contextmanager
def unfinished(out: Path) -> Iterator[Unfinished]:
    """Hold the work folder of an export; after an error it stays if it holds finished files.

    Raises:
        OutputConflictError: another process holds it.
        OSError: it cannot be made.
    """
    folder = out.with_name(f".{out.name}.unfinished")
    with contextlib.ExitStack() as stack:
        is_ours = False
        while not is_ours:  # another process may remove it after it has finished
            folder.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # there are no locks here
                if not stack.enter_context(locked_folder(folder)) and folder.exists():
                    raise OutputConflictError(
                        "another process is exporting to the output folder",
                        where=str(out),
                        hint="wait until it is done, or stop it",
                    )
            is_ours = folder.exists()
        work = Unfinished(folder)
        try:
            yield work
        except BaseException as error:
            with contextlib.suppress(OSError):
                remove_folder(work.partitions)
            if kept := work.num_finished():
                files = f"{kept:,} finished file{'s are' if kept > 1 else ' is'}"
                error.add_note(f"{files} kept: the same command continues")
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
