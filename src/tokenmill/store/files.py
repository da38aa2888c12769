"""Files that appear whole or not at all, and paths that stay inside their folder."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tokenmill.errors import StorageError, VerificationError


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the enclosed block into a StorageError that names `path`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        hints = {
            errno.ENOSPC: "free some space and run the same command again: it resumes",
            errno.EROFS: "choose an output folder on a file system that can be written",
            errno.EACCES: "check the owner and the permissions of the folder",
            errno.EDQUOT: "free some quota and run the same command again: it resumes",
        }
        raise StorageError(
            f"cannot {doing}",
            where=str(path),
            why=error.strerror or str(error),
            hint=hints.get(error.errno or 0, "run the same command again: it resumes"),
        ) from error


def fsync_path(path: Path) -> None:
    """Flush a file, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file so that a crash leaves either the old bytes or the new ones."""
    with storage_errors("write", path):
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync_path(path.parent)


def temporary_beside(path: Path) -> Path:
    """A hidden name for a folder that is to become `path`.

    What processes of this machine that are no more have left under such names is removed.
    """
    host = re.sub(r"\W", "_", socket.gethostname())
    for left in path.parent.glob(f".{glob.escape(path.name)}.{host}-*.tmp"):
        process = left.name.rpartition("-")[2].split(".")[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(left, ignore_errors=True)
    return path.with_name(f".{path.name}.{host}-{os.getpid()}.tmp")


def path_inside(folder: Path, name: str) -> Path:
    """The path of `name` below `folder`; a name that leads out of it is refused."""
    root = folder.resolve()
    try:
        path = (folder / name).resolve()
    except (ValueError, RuntimeError, OSError):  # a zero byte, or links that lead in a circle
        path = root.parent
    if not path.is_relative_to(root):
        raise VerificationError(
            f"the file name {name!r} leads out of the dataset",
            where=str(folder),
            why="a dataset may only name files below its own folder",
            hint="do not open this dataset; get it again from where it came from",
        )
    return path
