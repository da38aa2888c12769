"""A folder as an object store. link(2) creates each object only once, also on network mounts.

Over a network, an answer can be lost; the client repeats its request, which then finds that the
work is done. link() reports EEXIST or ESTALE, and rename() ENOENT (open(2); RFC 1813, section
4.5). Neither answer is trusted: the content of the name decides, and for a rename, whether the old
name is gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tokenmill.store.files import fsync_path, storage_error, storage_errors, written_beside

WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
"""Errors of link(2) on file systems without hard links."""
UNCERTAIN = (errno.EEXIST, errno.ENOENT, errno.ESTALE)
"""Errors that can come from a repeated request, or from a name that was just removed."""
WAITS = (0.0, 0.0, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0)
"""Seconds before each attempt; changes by other hosts take time to appear on a network mount."""


class FolderStore:
    """An ObjectStore whose objects are files below a folder.

    Files with names that start with a dot are not objects: they are unfinished, or were removed
    from a network mount while open.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = str(folder)

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        path = self._path(name)
        with storage_errors("write", path):
            for seconds in WAITS:
                if seconds:
                    time.sleep(seconds)
                if (held := _created(path, data, durable=durable)) is not None:
                    return held
        raise storage_error(
            OSError(errno.EBUSY, "another process keeps creating and deleting it"), "write", path
        )

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with storage_errors("write", path), written_beside(path, data, durable=False) as temporary:
            _rename(temporary, path, len(data))

    def add_files(self, files: Mapping[str, Path]) -> None:
        paths = {self._path(name): file for name, file in files.items()}
        for path, file in paths.items():
            with storage_errors("flush a file", file):
                num_bytes = fsync_path(file)
            with storage_errors("give a file its name", path):
                _move(file, path, num_bytes)
        for folder in {path.parent for path in paths}:
            with storage_errors("flush a folder", folder):
                fsync_path(folder)

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        with storage_errors("read", path):
            return _read(path)

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((name, self.read(name)) for name in names)

    def sizes(self, folder: str) -> dict[str, int]:
        path, sizes = self._path(folder), {}
        with storage_errors("list", path):
            try:
                found = list(os.scandir(path))
            except FileNotFoundError:
                return {}
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                    if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                        name = f"{folder}/{entry.name}" if folder else entry.name
                        sizes[name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def size(self, name: str) -> int | None:
        path = self._path(name)
        with storage_errors("look at a file", path):
            return _size(path)

    def remove(self, names: Iterable[str]) -> None:
        for path in map(self._path, names):
            with storage_errors("remove", path):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self.folder / name


def _created(path: Path, data: bytes, *, durable: bool) -> bytes | None:
    """Create the file, or read the one that exists; None if link reported one but there is none.

    The process that finds an existing file flushes the folder too, because it may act on it.
    """
    with written_beside(path, data, durable=durable) as temporary:
        held = data if _linked(temporary, path) else _read(path)
    if durable and held is not None:
        fsync_path(path.parent)
    return held


def _linked(temporary: Path, path: Path) -> bool:
    """Link the temporary file to the name; False means that it may or may not have worked."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in UNCERTAIN:
            return False
        if error.errno not in WITHOUT_LINKS:
            raise
        if path.exists():
            return False
        os.replace(temporary, path)  # correct for a single agent; the probe refuses several
    return True


def _read(path: Path) -> bytes | None:
    """Return the bytes of a file, or None if it does not exist."""
    for seconds in WAITS:
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno != errno.ESTALE:  # removed on another host between open and read
                raise
            time.sleep(seconds)
    return path.read_bytes()


def _move(file: Path, path: Path, num_bytes: int) -> None:
    """Move a flushed file; if it is on another file system, copy it first."""
    try:
        _rename(file, path, num_bytes)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with written_beside(path, b"", durable=False) as temporary:
            shutil.copyfile(file, temporary)
            _rename(temporary, path, fsync_path(temporary))
        with contextlib.suppress(OSError):
            file.unlink()


def _rename(old: Path, new: Path, num_bytes: int) -> None:
    """Rename a file of this size, replacing the target; create a missing folder."""
    for seconds in WAITS:
        try:
            os.replace(old, new)
        except OSError as error:
            if error.errno not in UNCERTAIN:
                raise
            if not old.exists():
                if _size(new) == num_bytes:  # it was renamed, but the answer was lost
                    return
                raise
            new.parent.mkdir(parents=True, exist_ok=True)
            time.sleep(seconds)
        else:
            return
    os.replace(old, new)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None
