"""A folder as an object store: what link(2) creates is created once, on network mounts too.

Over a network an answer can be lost: the client sends its request again, which then finds its own
work done. link() says EEXIST or ESTALE, rename() ENOENT (open(2); RFC 1813, section 4.5). So
neither answer is believed: what the name holds decides, and for a rename, whether the old name is
gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from tokenmill.store.files import fsync_path, storage_error, storage_errors
from tokenmill.store.objects.object_store import ObjectEntry

WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EINVAL)
"""What link(2) answers on file systems that have no hard links."""
UNCERTAIN = (errno.EEXIST, errno.ENOENT, errno.ESTALE)
"""Answers that may be those of a request sent a second time, or of a name that just went away."""
WAITS = (0.0, 0.0, 0.001, 0.004, 0.016, 0.064, 0.25, 1.0)
"""Seconds before each try; a network mount may need a while to see what another host has done."""


class FolderStore:
    """Objects are files below a folder; an ObjectStore.

    Files whose names start with a dot are not objects: they are unfinished, or were removed from a
    network mount while they were open.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def location(self) -> str:
        return str(self._folder)

    @property
    def folder(self) -> Path:
        """The folder itself."""
        return self._folder

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
        with storage_errors("write", path), _written(path, data, durable=False) as temporary:
            _rename(temporary, path, len(data))

    def add_files(self, files: Mapping[str, Path]) -> None:
        paths = {self._path(name): file for name, file in files.items()}
        for path, file in paths.items():
            with storage_errors("flush a file", file):
                num_bytes = _flushed(file)
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

    def entries(self, folder: str) -> Iterator[ObjectEntry]:
        path = self._path(folder)
        with storage_errors("list", path):
            try:
                found = list(os.scandir(path))
            except FileNotFoundError:
                return
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # removed since
                    if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                        num_bytes = entry.stat(follow_symlinks=False).st_size
                        name = f"{folder}/{entry.name}" if folder else entry.name
                        yield ObjectEntry(name, num_bytes)

    def size(self, name: str) -> int | None:
        path = self._path(name)
        with storage_errors("look at a file", path):
            return _size(path)

    def remove(self, names: Iterable[str]) -> None:
        for path in map(self._path, names):
            with storage_errors("remove", path):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / name


def _created(path: Path, data: bytes, *, durable: bool) -> bytes | None:
    """Give these bytes the name, or read what has it; None if nothing has it although link said so.

    Who comes second flushes the folder too: it may act on what it has seen.
    """
    with _written(path, data, durable=durable) as temporary:
        held = data if _linked(temporary, path) else _read(path)
    if durable and held is not None:
        fsync_path(path.parent)
    return held


def _linked(temporary: Path, path: Path) -> bool:
    """Whether the name is now that of the temporary file; if not, it may be all the same."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in UNCERTAIN:
            return False
        if error.errno not in WITHOUT_LINKS:
            raise
        if path.exists():
            return False
        os.replace(temporary, path)  # right for one agent; the probe keeps others away
    return True


@contextlib.contextmanager
def _written(path: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
    """A file with these bytes beside `path`, under a name that nobody else has; removed after."""
    temporary = _temporary(path)
    try:
        with _new_file(temporary) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        _discard(temporary)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def _new_file(path: Path) -> BinaryIO:
    try:
        return open(path, "xb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb")


def _discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink()


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None if there is none."""
    for seconds in WAITS:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE:  # removed on another host between open and read
                raise
            time.sleep(seconds)
    return path.read_bytes()


def _flushed(file: Path) -> int:
    """Flush a file to the disk; its size in bytes."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _move(file: Path, path: Path, num_bytes: int) -> None:
    """Rename a flushed file; from another file system it is copied first."""
    try:
        _rename(file, path, num_bytes)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = _temporary(path)
        try:
            with _new_file(temporary):
                pass
            shutil.copyfile(file, temporary)
            _rename(temporary, path, _flushed(temporary))
        finally:
            _discard(temporary)
        _discard(file)


def _rename(old: Path, new: Path, num_bytes: int) -> None:
    """Rename a file of this size over whatever has the new name; make a missing folder."""
    for seconds in WAITS:
        try:
            os.replace(old, new)
        except OSError as error:
            if error.errno not in UNCERTAIN:
                raise
            if not old.exists():
                if _size(new) == num_bytes:  # done; its answer was lost
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
    except FileNotFoundError:
        return None
