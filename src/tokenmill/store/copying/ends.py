"""Source and destination of a copy, whose content is not trusted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokenmill.core.errors import VerificationError
from tokenmill.core.paths import is_safe_path, local_path
from tokenmill.store.canonical import RESTORE, unseal, wrong_size
from tokenmill.store.cloud.names import WEB, ObjectName, is_remote
from tokenmill.store.dataset import PLAN_NAME
from tokenmill.store.files import path_inside, storage_errors
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME, FileEntry, Manifest, Run
from tokenmill.store.manifest_checks import find_manifest
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.ownership import TEMPORARY
from tokenmill.store.plan import ARRAYS, PlanManifest

if TYPE_CHECKING:
    from tokenmill.store.cloud.client import Client

PIECE_BYTES = 8 << 20
PLANS = "plans"

Check = Callable[[], None]
"""Called repeatedly while a file is read; may raise to stop the copy."""


@dataclass(frozen=True, slots=True)
class CopiedPlan:
    """A plan of the source dataset."""

    path: str
    """The name of its plan.json."""
    data: bytes
    """The bytes of plan.json."""
    files: list[FileEntry]
    """The arrays of the plan; names are relative to the dataset."""


@dataclass(frozen=True, slots=True)
class End:
    """A folder on this machine, or a prefix of a bucket or a web server.

    Methods raise a StorageError if it fails.
    """

    store: ObjectStore
    folder: Path | None = None
    client: Client | None = None

    @property
    def location(self) -> str:
        """The folder, or scheme://bucket/prefix."""
        return self.store.location

    @property
    def can_list(self) -> bool:
        """Whether files can be listed; web servers cannot do this."""
        return self.client is None or ObjectName.parse(self.location).scheme not in WEB

    def path(self, name: str) -> Path | None:
        """Return the path of a file, if it is on this machine."""
        return None if self.folder is None else path_inside(self.folder, name)

    def pieces(self, name: str, num_bytes: int, check: Check) -> Iterator[bytes]:
        """Yield the bytes of a file with `num_bytes` bytes; another number if its size differs."""
        if self.client is not None:
            yield from self.client.pieces(name, num_bytes, 1, check)
            return
        path = self.path(name)
        assert path is not None
        with storage_errors("read a file", path), open(path, "rb", buffering=0) as file:
            left = num_bytes + 1  # one more byte shows that a file is too long
            while left and (piece := file.read(min(PIECE_BYTES, left))):
                check()
                left -= len(piece)
                yield piece

    def sizes(self, folders: Iterable[str]) -> dict[str, int]:
        """Return the size in bytes of each file directly in `folders`, by name."""
        found: dict[str, int] = {}
        for folder in folders:
            found |= self.store.sizes(folder)
        return found

    def is_empty(self) -> bool:
        """Return whether the location has no files but unfinished ones of a killed process."""
        if self.client is not None:
            return next(self.client.list(), None) is None
        assert self.folder is not None
        with storage_errors("list a folder", self.folder):
            found = list(self.folder.iterdir()) if self.folder.exists() else []
        return all(re.fullmatch(TEMPORARY, path.name) for path in found)

    def plans(self) -> list[str]:
        """Return the sorted names of the folders in `plans/` with a plan.json."""
        if self.folder is not None:
            found = (self.folder / PLANS).glob(f"[!.]*/{PLAN_NAME}")
            return sorted(path.parent.name for path in found)
        assert self.client is not None
        objects = self.client.list(PLANS) if self.can_list else ()
        keys = (each.key.split("/") for each in objects)
        found_names = (key[1] for key in keys if len(key) == 3 and key[2] == PLAN_NAME)
        return sorted(name for name in found_names if not name.startswith("."))

    def read_manifest(self) -> tuple[bytes, Manifest]:
        """Return the bytes of the manifest, and the checked manifest.

        Raises:
            UserError: there is none.
            VerificationError: it is damaged.
        """
        return find_manifest(self.store.read(MANIFEST_NAME), self.location)

    def read_run(self) -> bytes:
        """Return the bytes of run.json after checking them."""
        data = self.store.read(RUN_NAME)
        if data is None:
            raise self.damaged(RUN_NAME, "it is missing")
        unseal(data, Run, f"{self.location}/{RUN_NAME}")
        return data

    def read_plan(self, name: str, dataset_id: str) -> CopiedPlan:
        """Read a plan; its files must be exactly those of a plan."""
        place = f"{PLANS}/{name}"
        path = f"{place}/{PLAN_NAME}"
        data = self.store.read(path) if is_safe_path(name) else None
        if data is None:
            raise self.damaged(path, "it is missing")
        manifest = unseal(data, PlanManifest, f"{self.location}/{path}")
        if manifest.dataset_id != dataset_id:
            raise self.damaged(path, "the plan belongs to a different dataset")
        if [file.name for file in manifest.files] != [f"{array}.npy" for array in ARRAYS]:
            raise self.damaged(path, "it names files that do not belong to a plan")
        files = [
            msgspec.structs.replace(file, name=f"{place}/{file.name}") for file in manifest.files
        ]
        return CopiedPlan(path, data, files)

    def require_sizes(self, files: Iterable[FileEntry]) -> None:
        """Raise a VerificationError if a file is missing or has another size."""
        files = list(files)
        sizes = self.sizes(folders_of(files)) if self.can_list else {}
        for file in files:
            size = sizes.get(file.name)
            if size is None:  # listings may lag, and web servers have none
                size = self.store.size(file.name)
            if size != file.bytes:
                raise wrong_size(f"{self.location}/{file.name}", file.bytes, size)

    def damaged(self, name: str, why: str) -> VerificationError:
        """Return the error for a damaged file."""
        where = f"{self.location}/{name}"
        return VerificationError(
            "a file of the dataset is damaged", where=where, why=why, hint=RESTORE
        )


def folders_of(files: Iterable[FileEntry]) -> list[str]:
    """Return the folders of files, sorted."""
    return sorted({file.name.rpartition("/")[0] for file in files})


def open_end(location: str | Path, what: str) -> End:
    """Return the end of a location, without any request. `what` describes it in messages.

    Raises:
        UserError: it is neither a path nor the address of an object store.
    """
    if is_remote(location):
        from tokenmill.store.cloud.client import Client  # imported late: loads the library
        from tokenmill.store.objects.bucket import BucketStore

        client = Client(str(location))
        return End(BucketStore(client), client=client)
    folder = local_path(location, what)
    return End(FolderStore(folder), folder=folder)
