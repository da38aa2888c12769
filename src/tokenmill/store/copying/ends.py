"""The two ends of a copy: a folder or a prefix of a bucket, read by pieces and written by file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokenmill.cloud.names import WEB, ObjectName, is_remote
from tokenmill.paths import local_path
from tokenmill.store.files import path_inside, storage_errors, temporary_folder
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore

if TYPE_CHECKING:
    from tokenmill.cloud.client import Client

PIECE_BYTES = 8 << 20
PLANS = "plans"
PLAN_FILE = "plan.json"

Check = Callable[[], None]
"""Called now and then while a file is read; it may raise."""


class CopyEnd(Protocol):
    """A place that a dataset is copied from or to. Methods raise a StorageError where it fails."""

    @property
    def store(self) -> ObjectStore:
        """The objects of the place."""

    @property
    def location(self) -> str:
        """The folder, or scheme://bucket/prefix."""

    @property
    def can_list(self) -> bool:
        """Whether the place says what it holds; web servers do not."""

    def pieces(self, name: str, num_bytes: int, check: Check) -> Iterator[bytes]:
        """Yield the bytes of a file that should have so many; fewer, if it ends before."""

    def path(self, name: str) -> Path | None:
        """The file itself, if it is on this machine."""

    def sizes(self, folders: Iterable[str]) -> dict[str, int]:
        """Bytes of the files directly in some folders, by name."""

    def plans(self) -> list[str]:
        """Names of the folders in `plans/` that hold a plan.json, sorted."""

    def is_empty(self) -> bool:
        """Whether the place holds nothing, or does not exist."""

    def scratch(self) -> AbstractContextManager[Path]:
        """A folder for files that are on their way into this place."""


class FolderEnd:
    """A folder of this machine; a CopyEnd."""

    can_list = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store: ObjectStore = FolderStore(folder)
        self.location = str(folder)

    def pieces(self, name: str, num_bytes: int, check: Check) -> Iterator[bytes]:
        path = path_inside(self._folder, name)
        with storage_errors("read a file", path), open(path, "rb", buffering=0) as file:
            left = num_bytes + 1  # one more tells a file that is too long
            while left and (piece := file.read(min(PIECE_BYTES, left))):
                check()
                left -= len(piece)
                yield piece

    def path(self, name: str) -> Path | None:
        return path_inside(self._folder, name)

    def sizes(self, folders: Iterable[str]) -> dict[str, int]:
        return _sizes(self.store, folders)

    def plans(self) -> list[str]:
        found = (self._folder / PLANS).glob(f"[!.]*/{PLAN_FILE}")
        return sorted(path.parent.name for path in found)

    def is_empty(self) -> bool:
        with storage_errors("list a folder", self._folder):
            try:
                with os.scandir(self._folder) as found:
                    return next(found, None) is None
            except FileNotFoundError:
                return True

    def scratch(self) -> AbstractContextManager[Path]:
        return temporary_folder(self._folder / "copy")


class BucketEnd:
    """A prefix of a bucket, or of a web server; a CopyEnd."""

    def __init__(self, client: Client) -> None:
        from tokenmill.store.objects.bucket import BucketStore

        self._client = client
        self.store: ObjectStore = BucketStore(client)
        self.location = client.location
        self.can_list = ObjectName.parse(self.location).scheme not in WEB

    def pieces(self, name: str, num_bytes: int, check: Check) -> Iterator[bytes]:
        for start in range(0, num_bytes, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, num_bytes)
            yield self._client.get_range(name, start, stop, check=check)

    def path(self, name: str) -> Path | None:  # noqa: ARG002
        return None

    def sizes(self, folders: Iterable[str]) -> dict[str, int]:
        return _sizes(self.store, folders)

    def plans(self) -> list[str]:
        if not self.can_list:
            return []
        keys = (found.key.split("/") for found in self._client.list(PLANS))
        parts = (key for key in keys if len(key) == 3 and key[2] == PLAN_FILE)
        return sorted(name for _, name, _ in parts if not name.startswith("."))

    def is_empty(self) -> bool:
        return next(self._client.list(), None) is None

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
            yield Path(folder)


def open_end(location: str | Path, what: str) -> CopyEnd:
    """The place of a location; `what` is what the user names by it. Nothing is requested or made.

    Raises:
        UserError: it is neither a path nor the name of a place in a store.
    """
    if is_remote(location):
        from tokenmill.cloud.client import open_client  # imports what talks to servers

        return BucketEnd(open_client(str(location)))
    return FolderEnd(local_path(location, what))


def _sizes(store: ObjectStore, folders: Iterable[str]) -> dict[str, int]:
    return {each.name: each.num_bytes for folder in folders for each in store.entries(folder)}
