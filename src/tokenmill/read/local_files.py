"""Files, folders and globs on this machine, as the user names them, to paths of regular files."""

from __future__ import annotations

import errno
import glob
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenmill.errors import StorageError, UserError
from tokenmill.read.saved import is_description, is_saved, saved_files

MISTAKES = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)
"""What an input cannot be read for through no fault of a disk."""


def expand(name: str) -> Iterator[Path]:
    """The files of a file, folder or glob: folders sorted, saved data sets in their own order.

    Raises:
        UserError: nothing matches, or a folder cannot be read.
    """
    path = Path(name)
    if path.is_dir():
        for folder, folders, files in os.walk(path, onerror=_refuse_folder):
            if is_saved(Path(folder)):
                folders.clear()
                yield from saved_files(Path(folder))
                continue
            folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
            yield from (Path(folder) / file for file in sorted(files) if not file.startswith("."))
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


def _refuse_description(path: Path) -> None:
    if is_description(path):
        raise UserError(
            "a file describes a saved data set, and holds no records",
            where=str(path),
            hint=f"name the folder: {path.parent}",
        )


def _refuse_folder(error: OSError) -> None:
    """A folder that cannot be listed may hold inputs, so it is not passed over."""
    where = str(error.filename)
    raise _kind(error)("a folder cannot be read", where=where, why=str(error)) from error


def _kind(error: OSError) -> type[UserError | StorageError]:
    """Whether the user or the disk is at fault."""
    return UserError if error.errno in MISTAKES else StorageError


def refuse_unspeakable(paths: Sequence[Path]) -> None:
    """Raise a UserError for a name that is not UTF-8: manifests are, and name every source."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            why, hint = "its name is not UTF-8", "rename it"
            raise UserError(
                "an input cannot be named", where=ascii(path), why=why, hint=hint
            ) from error


def regular_file(path: Path) -> os.stat_result:
    """What is known of a file that can be read.

    Raises:
        UserError: it cannot, or is a device, a pipe or a socket.
        StorageError: the disk or the network mount fails.
    """
    try:
        status = path.stat()
        with open(path, "rb") if stat.S_ISREG(status.st_mode) else open(os.devnull):
            pass
    except OSError as error:
        raise _kind(error)("an input cannot be read", where=str(path), why=str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        why = "it is a device, a pipe or a socket"
        raise UserError("an input is not a regular file", where=str(path), why=why)
    return status
