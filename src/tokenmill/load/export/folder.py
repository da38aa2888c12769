"""What lies at the output of an export, and the work folder beside it while it runs.

Beside the output `rows/` lies `.rows.unfinished/`, which one process holds at a time:

begun.json          what is exported; another export does not continue this one
progress.json       how far it is; only for display
rows/               output files
receipts/STEM.json  the files of one finished stem, which are on the disk, with their digests
partitions/         rows that were read and are in no file yet; they are lost if it is stopped

A kill just after the output was replaced leaves the old export in `rows/`: what no receipt
describes, to the last bit, never becomes a part of an output.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from tokenmill.core.errors import (
    OutputConflictError,
    TokenmillError,
    VerificationError,
)
from tokenmill.core.records import Advance
from tokenmill.store.canonical import canonical_json, read_sealed, write_sealed
from tokenmill.store.digests import file_digest
from tokenmill.store.exports import (
    EXPORT_NAME,
    AnyManifest,
    DocumentsManifest,
    ExportManifest,
    read_export,
)
from tokenmill.store.files import (
    fsync_path,
    held_beside,
    remove_folder,
    remove_leftover,
    require_space,
    write_atomically,
    written_beside,
)
from tokenmill.store.manifest import FileEntry
from tokenmill.store.ownership import TEMPORARY, refuse_strangers

LOGGER = logging.getLogger(__name__)
_STEM = r"(rows-\d+-\d+|(train|validation)-\d+|train|val)"
_FILES = re.compile(
    rf"(begun|progress)\.json|receipts/{_STEM}\.json|partitions/\d+\.\w+"
    rf"|(rows|replaced)/((export|blend|index|state|dataset_info)\.json|{_STEM}\.[^/]+)|(\w+/)?{TEMPORARY}"
)
"""The files in the work folder."""

Wanted = TypeVar("Wanted", ExportManifest, DocumentsManifest)

REPORT_SECONDS = 2.0
PROGRESS_NAME = "progress.json"


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the bytes of an export."""

    manifest: ExportManifest
    """The manifest without files."""
    rows_per_file: dict[str, int]
    """By the length of rows."""


class BegunDocuments(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the bytes of an export of documents."""

    manifest: DocumentsManifest
    """The manifest without files."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The record of the finished files of one stem."""

    files: list[FileEntry]
    digest: str = ""


class Progress(msgspec.Struct, frozen=True):
    """How far an export is: bytes of a stage, and when that was, in seconds since 1970."""

    stage: Annotated[str, Meta(max_length=100)]
    done: Annotated[int, Meta(ge=0, le=2**62)]
    total: Annotated[int, Meta(ge=0, le=2**62)]
    clock: Annotated[float, Meta(ge=0, le=1e12)]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The work folder of an export, locked by this process."""

    folder: Path

    @property
    def rows(self) -> Path:
        """The folder that becomes the output."""
        return self.folder / "rows"

    @property
    def partitions(self) -> Path:
        """The folder of the partitions."""
        return self.folder / "partitions"

    def begin(self, begun: Begun | BegunDocuments, *, overwrite: bool, advance: Advance) -> None:
        """Keep finished files of the same export, and remove the rest.

        Raises:
            OutputConflictError: the folder holds another unfinished export.
        """
        remove_folder(self.partitions)
        found = self.begun()
        if found != begun:
            if found is not None and not overwrite:
                raise OutputConflictError(
                    "another export to the output folder was begun and stopped",
                    where=str(self.folder),
                    why=difference(found.manifest, begun.manifest) or "its files have other sizes",
                    hint="finish it with its command, choose another folder, or add --overwrite",
                )
            for folder in (self.folder / "receipts", self.rows):
                remove_folder(folder)
            write_atomically(self._begun_path, canonical_json(begun))
        for folder in (self.folder / "receipts", self.rows):
            folder.mkdir(exist_ok=True)
        self._keep_what_is_whole(advance)

    def reporting(self, advance: Advance) -> Advance:
        """Return `advance`, which now also stores the progress, every two seconds."""
        stored_at, path = 0.0, self.folder / PROGRESS_NAME

        def report(stage: str, done: int, total: int) -> None:
            nonlocal stored_at
            if time.monotonic() - stored_at >= REPORT_SECONDS:
                stored_at = time.monotonic()
                data = canonical_json(Progress(stage, done, total, time.time()))
                with contextlib.suppress(OSError), written_beside(path, data, durable=False) as new:
                    new.replace(path)
            advance(stage, done, total)

        return report

    def finished(self, stem: str) -> list[FileEntry] | None:
        """The files of a stem, if they are complete."""
        try:
            entries = read_sealed(self._receipt(stem), Receipt).files
        except VerificationError:
            return None
        are_there = all(
            entry.name.startswith(f"{stem}.")
            and "/" not in entry.name
            and (path := self.rows / entry.name).is_file()
            and path.stat().st_size == entry.bytes
            for entry in entries
        )
        return entries if are_there else None

    def finish(self, stem: str, entries: list[FileEntry]) -> None:
        """Record that the files of a stem are complete on disk."""
        write_sealed(self._receipt(stem), Receipt(files=entries))

    def require_space(self, needed: int) -> None:
        """Raise a StorageError if less than `needed` bytes are free for the files that are left."""
        require_space(self.folder, needed, "the export")

    def num_finished(self) -> int:
        """Number of finished files that the next attempt can reuse."""
        return sum(len(self.finished(stem) or ()) for stem in self._receipts())

    def begun(self) -> Begun | BegunDocuments | None:
        """The unfinished export in this folder; None if it cannot be resumed."""
        with contextlib.suppress(FileNotFoundError):
            data = self._begun_path.read_bytes()
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                return msgspec.json.decode(data, type=Begun)
            with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                return msgspec.json.decode(data, type=BegunDocuments)
        return None

    def _keep_what_is_whole(self, advance: Advance) -> None:
        """Remove receipts of changed files, and files without a receipt."""
        found = {stem: self.finished(stem) for stem in self._receipts()}
        total = sum(entry.bytes for entries in found.values() for entry in entries or ())
        whole: set[str] = set()
        done = 0
        for stem, entries in found.items():
            are_same = entries is not None
            for entry in entries or ():
                are_same &= file_digest(self.rows / entry.name) == entry.xxh3_128
                done += entry.bytes
                advance("checking", done, total)
            if are_same and entries:
                whole.update(entry.name for entry in entries)
                continue
            LOGGER.warning("%s was changed; writing it again", stem)
            self._receipt(stem).unlink()
        for path in self.rows.iterdir():
            if path.is_dir() and not path.is_symlink():
                remove_folder(path)
            elif path.name not in whole:
                path.unlink()

    def _receipts(self) -> list[str]:
        """The stems with a receipt."""
        return sorted(path.stem for path in (self.folder / "receipts").glob("*.json"))

    @property
    def _begun_path(self) -> Path:
        return self.folder / "begun.json"

    def _receipt(self, stem: str) -> Path:
        return self.folder / "receipts" / f"{stem}.json"


@contextlib.contextmanager
def unfinished(out: Path) -> Iterator[Unfinished]:
    """Lock the work folder of an export. After an error it is kept if it holds finished files.

    Raises:
        OutputConflictError: another process holds it.
        OSError: the folder cannot be created.
    """
    with held_beside(out, EXPORT_NAME, _FILES.fullmatch) as folder:
        work = Unfinished(folder)
        try:
            yield work
        except BaseException as error:
            with contextlib.suppress(OSError):
                remove_folder(work.partitions)
            if kept := work.num_finished():
                files = f"{kept:,} finished file{'s are' if kept > 1 else ' is'}"
                if not isinstance(
                    error, OutputConflictError
                ):  # then the files belong to another export
                    error.add_note(f"{files} kept")
            else:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def flushed(path: Path, digest: str = "") -> FileEntry:
    """Flush a file. Its digest is computed from the page cache, unless it is given."""
    digest = digest or file_digest(path)
    return FileEntry(name=path.name, bytes=fsync_path(path), xxh3_128=digest)


def remove_unfinished(out: Path, begun: Begun | BegunDocuments) -> None:
    """Remove leftovers of a killed process if the same export is complete at the output."""
    remove_leftover(
        out, _FILES.fullmatch, lambda folder: Unfinished(folder).begun() in (None, begun)
    )


def found_export(out: Path, wanted: Wanted, *, overwrite: bool) -> Wanted | None:
    """Return the manifest of a complete export equal to the wanted one; checks sizes, not digests.

    With `overwrite`, any export is replaced: the result is None.

    Raises:
        OutputConflictError: the folder holds another export or something else.
    """
    if not out.exists() and not out.is_symlink():
        return None
    found: AnyManifest = export_at(out)
    if overwrite:
        known = {EXPORT_NAME, *(entry.name for entry in found.files), *links_of(found)}
        refuse_strangers(out, known.__contains__)
        return None
    why = difference(found, wanted) or _damage(out, found)
    if not why:
        assert isinstance(found, type(wanted))  # otherwise they differ
        return found
    raise OutputConflictError(
        "the output folder holds another export",
        where=str(out),
        why=why,
        hint="choose another folder, or replace the export with --overwrite",
    )


def export_at(out: Path) -> AnyManifest:
    """Return the manifest of the export in the existing folder `out`.

    Raises:
        OutputConflictError: the folder holds something else.
    """
    if not out.is_symlink():
        with contextlib.suppress(TokenmillError, OSError):
            return read_export(out)
    hint = "choose another folder, or remove this one"
    raise OutputConflictError("the output folder already exists", where=str(out), hint=hint)


def difference(found: AnyManifest, wanted: AnyManifest) -> str:
    """How an export differs from the wanted one; "" if it does not."""
    there, asked = _options(found), _options(wanted)
    if type(found) is not type(wanted):
        return f"format: {there['format']}, not {asked['format']}"
    for name in ("dataset_id", "plan_id"):
        ids = [getattr(manifest, name, "") for manifest in (found, wanted)]
        if ids[0] != ids[1]:
            return f"{name}: {ids[0]}, not {ids[1]}"
    pairs = {name: (there.get(name, "none"), value) for name, value in asked.items()}
    return "; ".join(
        f"{name}: {one}, not {other}" for name, (one, other) in pairs.items() if one != other
    )


def _options(manifest: AnyManifest) -> dict[str, str]:
    """Options formatted for a message."""
    values = {**msgspec.to_builtins(manifest.options)}
    for name, default in (("dtype", "int32"), ("order", "shuffled"), ("layout", "none")):
        values.setdefault(name, default)
    return {
        name: ",".join(value) if isinstance(value, (list, tuple)) else str(value)
        for name, value in values.items()
    }


def links_of(manifest: AnyManifest) -> dict[str, str]:
    """The links of an export, by name."""
    return manifest.links if isinstance(manifest, DocumentsManifest) else {}


def _damage(folder: Path, manifest: AnyManifest) -> str:
    """Which file of an export is missing or has another size; "" if none."""
    for name in links_of(manifest):
        if not (folder / name).is_file():
            return f"its link {name!r} leads to no file"
    for entry in manifest.files:
        path = folder / entry.name
        if "/" in entry.name or not path.is_file() or path.stat().st_size != entry.bytes:
            return f"its file {entry.name!r} is missing or has another size"
    return ""
