"""Files, folders and globs on this machine, as the user names them, to paths of regular files."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from tokenmill.errors import UserError
from tokenmill.paths import local_path, path_error, refuse_non_utf8
from tokenmill.read.places.saved import is_description, is_saved, saved_files


def expand(name: str) -> Iterator[Path]:
    """The files of a file, folder or glob: folders sorted, saved data sets in their own order.

    Links to folders are followed, and no folder is read twice.

    Raises:
        UserError: nothing matches, or a folder cannot be read.
    """
    path = local_path(name, "an input")
    if path.is_dir():
        yield from _files_below(path)
    elif os.path.lexists(path):
        _refuse_description(path)
        yield path
    else:
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise UserError(
                "an input does not exist", where=name, hint="check the spelling of the path or glob"
            )
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
    """What two names of one folder have in common."""
    try:
        status = folder.stat()
    except OSError as error:
        _refuse_folder(error)
    return status.st_dev, status.st_ino


def _refuse_description(path: Path) -> None:
    if is_description(path):
        raise UserError(
            "a file describes a saved data set, and holds no records",
            where=str(path),
            hint=f"name the folder: {path.parent}",
        )


def _refuse_folder(error: OSError) -> NoReturn:
    """A folder that cannot be listed may hold inputs, so it is not passed over."""
    where = str(error.filename)
    raise path_error(error)("a folder cannot be read", where=where, why=str(error)) from error


def real_paths(paths: Iterable[Path]) -> dict[Path, Path]:
    """The file behind each path. A folder is resolved once, however many files it holds.

    Raises:
        UserError: a name is not UTF-8: manifests are, and name every source.
    """
    folders: dict[Path, Path] = {}
    found = {}
    for path in paths:
        if path.parent not in folders:
            # Unlike `resolve`, `realpath` accepts links in a circle.
            folders[path.parent] = Path(os.path.realpath(path.parent))
        real = folders[path.parent] / path.name
        found[path] = Path(os.path.realpath(real)) if real.is_symlink() else real
        refuse_non_utf8(found[path], "an input")
    return found


def regular_file(path: Path) -> os.stat_result:
    """What is known of a file that can be read.

    Raises:
        UserError: it cannot, or its bytes are not kept on a disk: a device, a pipe, a socket, or
            a file of /proc.
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
        raise path_error(error)(
            "an input cannot be read", where=str(path), why=str(error)
        ) from error
    if endless:
        why = "its size is 0 but it has content, like files in /proc"
        hint = "copy it to a disk"
        raise UserError("an input is not a regular file", where=str(path), why=why, hint=hint)
    return status
