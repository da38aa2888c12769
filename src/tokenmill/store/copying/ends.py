"""Source and destination of a copy: a folder, or a prefix of a bucket."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokenmill.core.paths import local_path
from tokenmill.store.cloud.names import WEB, ObjectName, is_remote
from tokenmill.store.files import path_inside, storage_errors, temporary_folder
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.ownership import TEMPORARY

if TYPE_CHECKING:
    from tokenmill.store.cloud.client import Client

PIECE_BYTES = 8 << 20
PLANS = "plans"
PLAN_FILE = "plan.json"

Check = Callable[[], None]
"""Called repeatedly while a file is read; may raise to stop the copy."""


class CopyEnd(Protocol):
    """The source or destination of a copy. Methods raise a StorageError if it fails."""

    @property
    def store(self) -> ObjectStore:
        """The objects of this location."""

    @property
    def location(self) -> str:
        """The folder, or scheme://bucket/prefix."""

    @property
    def can_list(self) -> bool:
        """Whether files can be listed; web servers cannot do this."""

    def pieces(self, name: str, num_bytes: int, check: Check) -> Iterator[bytes]:
        """Yield the bytes of a file with `num_bytes` bytes; fewer if the file is shorter."""

    def path(self, name: str) -> Path | None:
        """Return the path of a file, if it is on this machine."""

    def sizes(self, folders: Iterable[str]) -> dict[str, int]:
        """Return the size in bytes of each file directly in `folders`, by name."""

    def plans(self) -> list[str]:
        """Return the sorted names of the folders in `plans/` with a plan.json."""

    def is_empty(self) -> bool:
        """Return whether the location has no files but unfinished ones of a killed process."""

    def scratch(self) -> AbstractContextManager[Path]:
        """Provide a temporary folder for files to be moved to this location."""


class FolderEnd:
    """A CopyEnd for a folder on this machine."""

    can_list = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.store: ObjectStore = FolderStore(folder)
        self.location = str(folder)

    def pieces(self, name: str, num_bytes: int, check: Check) -> Iterator[bytes]:
        path = path_inside(self._folder, name)
        with storage_errors("read a file", path), open(path, "rb", buffering=0) as file:
            left = num_bytes + 1  # one more byte shows that a file is too long
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
                    return all(re.fullmatch(TEMPORARY, entry.name) for entry in found)
            except FileNotFoundError:
                return True

    def scratch(self) -> AbstractContextManager[Path]:
        return temporary_folder(self._folder / "copy")


class BucketEnd:
    """A CopyEnd for a prefix of a bucket or a web server."""

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
    """Return the CopyEnd of a location, without any request. `what` describes it in messages.

    Raises:
        UserError: it is neither a path nor the address of an object store.
    """
    if is_remote(location):
        from tokenmill.store.cloud.client import (
            open_client,  # imported late: loads the client library
        )

        return BucketEnd(open_client(str(location)))
    return FolderEnd(local_path(location, what))


def _sizes(store: ObjectStore, folders: Iterable[str]) -> dict[str, int]:
    return {each.name: each.num_bytes for folder in folders for each in store.entries(folder)}
