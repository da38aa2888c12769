"""Local inputs: files, folders and globs."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NoReturn

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, path_error, refuse_non_utf8
from tokenmill.core.suggestions import nearest
from tokenmill.read.places.folders import DESCRIPTIONS, is_saved, only_describes, saved_files
from tokenmill.read.places.hub.names import ALIASES
from tokenmill.read.source import LOCAL, Access, Place, Source


class Local(Place):
    """The place for files on this machine."""

    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        """Return the files of each name, with paths relative to their common folder."""
        paths = {name: [*expand(name)] for name in names}
        real = real_paths(path for found in paths.values() for path in found)
        common = Path(os.path.commonpath({path.parent for path in real.values()}) if real else "")

        def source(path: Path) -> Source:
            status = regular_file(path)
            found = local_source(real[path].relative_to(common).as_posix(), real[path], status)
            return replace(found, location=str(path))

        return {name: [source(path) for path in found] for name, found in paths.items()}

    def open(self, source: Source, check: Callable[[], None]) -> BinaryIO:
        return open(source.location, "rb")

    def find_again(self, source: Source, path: Path) -> Source:
        status = path.stat() if path.is_file() else None
        if status is None or status.st_size != source.num_bytes:
            size = "" if status is None else f"{status.st_size} bytes, not {source.num_bytes}"
            raise UserError(
                "a source has changed since the build",
                where=str(path),
                why=size or "the file does not exist",
                hint="restore the file, or verify without --against-sources",
            )
        return replace(local_source(source.name, path, status), index=source.index)


def local_source(name: str, path: Path, status: os.stat_result) -> Source:
    """Return the source of a local file, identified by its mtime."""
    return Source(
        name=name,
        place=LOCAL,
        location=str(path),
        version=status.st_mtime_ns,
        num_bytes=status.st_size,
        path=path,
        mtime_ns=status.st_mtime_ns,
    )


def expand(name: str) -> Iterator[Path]:
    """Yield the files of a file, folder or glob: folders sorted, saved datasets in row order.

    Links to folders are followed, and no folder is read twice.

    Raises:
        UserError: no file matches, or a folder cannot be read.
    """
    path = local_path(name, "an input")
    if path.is_dir():
        yield from _files_below(path)
    elif os.path.lexists(path):
        if path.name in DESCRIPTIONS and is_saved(path.parent):
            raise only_describes(str(path), str(path.parent))
        yield path
    else:
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            close = nearest(name, ALIASES)
            hint = (
                f"did you mean hf://{close}?" if close else "check the spelling of the path or glob"
            )
            raise UserError("an input does not exist", where=name, hint=hint)
        for match in matches:
            yield from expand(match)


def _files_below(path: Path) -> Iterator[Path]:
    visited: set[tuple[int, int]] = set()
    for name, folders, files in os.walk(path, onerror=_refuse_folder, followlinks=True):
        folder = Path(name)
        place = _identity(folder)
        if place in visited:
            folders.clear()
        elif is_saved(folder):
            folders.clear()
            yield from saved_files(folder)
        else:
            folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
            yield from (folder / file for file in sorted(files) if not file.startswith("."))
        visited.add(place)


def _identity(folder: Path) -> tuple[int, int]:
    """Return the identity of a folder, which is the same for all its names."""
    try:
        status = folder.stat()
    except OSError as error:
        _refuse_folder(error)
    return status.st_dev, status.st_ino


def _refuse_folder(error: OSError) -> NoReturn:
    """Raise an error for an unreadable folder: it may contain inputs, so it is not skipped."""
    where = str(error.filename)
    raise path_error(error)("cannot read a folder", where=where, why=str(error)) from error


def real_paths(paths: Iterable[Path]) -> dict[Path, Path]:
    """Resolve links in paths. Each folder is resolved once, however many files it has.

    Raises:
        UserError: a path is not UTF-8, which manifests need.
    """
    folders: dict[Path, Path] = {}
    found = {}
    for path in paths:
        if path.parent not in folders:
            # Unlike `resolve`, `realpath` accepts circular links.
            folders[path.parent] = Path(os.path.realpath(path.parent))
        real = folders[path.parent] / path.name
        found[path] = Path(os.path.realpath(real)) if real.is_symlink() else real
        refuse_non_utf8(found[path], "an input")
    return found


def regular_file(path: Path) -> os.stat_result:
    """Return the status of a readable regular file.

    Raises:
        UserError: the file cannot be read, or is not on a disk: a device, a pipe, a socket, or a
            file in /proc.
        StorageError: the disk or the network mount fails.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            why = "it is a device, a pipe or a socket"
            raise UserError("an input is not a regular file", where=str(path), why=why)
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as file:
            endless = status.st_size == 0 and file.read(1)
    except OSError as error:
        raise path_error(error)("cannot read an input", where=str(path), why=str(error)) from error
    if endless:
        why = "its size is 0 but it has content, like files in /proc"
        hint = "copy it to a disk"
        raise UserError("an input is not a regular file", where=str(path), why=why, hint=hint)
    return status
