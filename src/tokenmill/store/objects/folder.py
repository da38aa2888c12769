"""A folder as an object store: what link(2) creates is created once, on network mounts too."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tokenmill.store.files import fsync_path, storage_error, storage_errors
from tokenmill.store.objects.object_store import ObjectEntry

WITHOUT_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What link(2) answers on file systems that have no hard links."""
MAX_TRIES = 10


class FolderStore:
    """Objects are files below a folder; an ObjectStore."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def location(self) -> str:
        return str(self._folder)

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        path = self._path(name)
        with storage_errors("write", path):
            temporary = self._written(path, data, durable=durable)
            try:
                for _ in range(MAX_TRIES):
                    if _link(temporary, path):
                        if durable:
                            fsync_path(path.parent)
                        return data
                    with contextlib.suppress(FileNotFoundError):  # just removed: once more
                        return path.read_bytes()
            finally:
                with contextlib.suppress(OSError):
                    temporary.unlink(missing_ok=True)
        raise storage_error(OSError(errno.EBUSY, "the name comes and goes"), "write", path)

    def replace(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with storage_errors("write", path):
            os.replace(self._written(path, data, durable=False), path)

    def add_files(self, files: Mapping[str, Path]) -> None:
        paths = {self._path(name): file for name, file in files.items()}
        for path, file in paths.items():
            with storage_errors("flush a file", file):
                fsync_path(file)
            with storage_errors("give a file its name", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                _move(file, path)
        for folder in {path.parent for path in paths}:
            with storage_errors("flush a folder", folder):
                fsync_path(folder)

    def read(self, name: str) -> bytes | None:
        path = self._path(name)
        with storage_errors("read", path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

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
                if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                    yield ObjectEntry(f"{folder}/{entry.name}", entry.stat().st_size)

    def size(self, name: str) -> int | None:
        path = self._path(name)
        with storage_errors("look at a file", path):
            try:
                return path.stat().st_size
            except FileNotFoundError:
                return None

    def remove(self, names: Iterable[str]) -> None:
        for path in map(self._path, names):
            with storage_errors("remove", path):
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / name

    def _written(self, path: Path, data: bytes, *, durable: bool) -> Path:
        """A file with these bytes beside `path`, under a name that nobody else has."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        with open(temporary, "xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        return temporary


def _link(temporary: Path, path: Path) -> bool:
    """Whether `path` is now a name of the temporary file; the number of its links decides.

    Over a network an answer can be lost, and the request sent again finds its own work (open(2)).
    """
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno in WITHOUT_LINKS:
            if path.exists():
                return False
            os.replace(temporary, path)  # right for one process; agents are refused by the probe
            return True
        if error.errno != errno.EEXIST:
            raise
        return temporary.stat().st_nlink == 2
    return True


def _move(file: Path, path: Path) -> None:
    try:
        os.replace(file, path)
    except FileNotFoundError:
        if not path.is_file():  # else its answer was lost
            raise
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        shutil.copyfile(file, temporary)
        fsync_path(temporary)
        os.replace(temporary, path)
        file.unlink()
