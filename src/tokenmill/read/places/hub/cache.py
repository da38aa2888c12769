"""The library's own cache of files, so that other tools find what was downloaded, and it theirs.

    datasets--OWNER--NAME/blobs/ETAG            the bytes, under their digest
    datasets--OWNER--NAME/snapshots/COMMIT/...  links to blobs, under the files' own names
    datasets--OWNER--NAME/refs/REVISION         the commit that a branch or tag stood for
    datasets--OWNER--NAME/listings/...          ours: the files that a name stands for at a commit

See https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import xxhash

from tokenmill.errors import StorageError
from tokenmill.paths import local_path
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.names import HubName, is_commit
from tokenmill.read.places.hub.selection import RULES


class HubCache:
    """One folder of downloaded files."""

    def __init__(self, folder: str | None) -> None:
        from huggingface_hub import constants

        name = os.path.expanduser(folder or constants.HF_HUB_CACHE)  # noqa: PTH111 - never fails
        self.folder = local_path(name, "the cache").resolve()

    def blob(self, file: HubFile) -> Path:
        """Where the bytes of a file are kept."""
        return self._of(file.repo) / "blobs" / file.etag

    def part(self, file: HubFile) -> Path:
        """Where they are collected until all have come."""
        blob = self.blob(file)
        return blob.with_name(f"{blob.name}.tokenmill.incomplete")

    def held_bytes(self, file: HubFile) -> int:
        """How many bytes of a file need not be fetched."""
        if has_size(self.blob(file), file.num_bytes):
            return file.num_bytes
        part = self.part(file)
        return min(part.stat().st_size, file.num_bytes) if part.is_file() else 0

    def find(self, file: HubFile) -> Path | None:
        """A file that is complete in the cache, whoever has put it there."""
        path = self._pointer(file)
        return path if has_size(path, file.num_bytes) else None

    def name_blob(self, file: HubFile) -> Path:
        """Give a blob its name at a commit."""
        path = self._pointer(file)
        with cache_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            link = _temporary(path)
            link.symlink_to(os.path.relpath(self.blob(file), path.parent))
            link.replace(path)
        return path

    def remembered_commit(self, name: HubName) -> str:
        """The commit that a revision was last known to stand for, "" for none."""
        path = self._of(name.repo) / "refs" / name.revision
        with contextlib.suppress(OSError, UnicodeDecodeError):
            commit = path.read_text(encoding="ascii").strip()
            return commit if is_commit(commit) else ""
        return ""

    def remember_commit(self, name: HubName, commit: str) -> None:
        """Store what a revision stands for now."""
        _keep(self._of(name.repo) / "refs" / name.revision, commit.encode())

    def listing(self, name: HubName) -> list[HubFile] | None:
        """The stored files of a name at a commit, None where there are none that can be used."""
        path = self._listing_path(name)
        with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
            files = msgspec.json.decode(path.read_bytes(), type=list[HubFile])
            place = (name.repo, name.revision)
            if all((file.repo, file.commit) == place and not file.problem for file in files):
                return files or None
        return None

    def store_listing(self, name: HubName, files: list[HubFile]) -> None:
        """Store the files of a name at a commit."""
        _keep(self._listing_path(name), msgspec.json.encode(files))

    def forget_listings(self, repo: str, commit: str) -> None:
        """Remove all listings of a commit: a file was not what it was listed as."""
        with contextlib.suppress(OSError):
            for path in (self._of(repo) / "listings").glob(f"{commit}-*.json"):
                path.unlink(missing_ok=True)

    def _listing_path(self, name: HubName) -> Path:
        key = xxhash.xxh3_64_hexdigest(f"{RULES}/{name.path}".encode())
        return self._of(name.repo) / "listings" / f"{name.revision}-{key}.json"

    def _pointer(self, file: HubFile) -> Path:
        return self._of(file.repo) / "snapshots" / file.commit / file.path

    def _of(self, repo: str) -> Path:
        return self.folder / "--".join(["datasets", *repo.split("/")])


def has_size(path: Path, num_bytes: int) -> bool:
    """Whether there is a file of so many bytes: it may have been cut off."""
    return path.is_file() and path.stat().st_size == num_bytes


def _keep(path: Path, data: bytes) -> None:
    """Store what saves a request the next time; a cache that cannot be written does without."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _temporary(path)
        part.write_bytes(data)
        part.replace(path)


def _temporary(path: Path) -> Path:
    """A name beside `path` that no other process or thread uses."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")


@contextmanager
def cache_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the enclosed block into a StorageError that names the cache."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            "cannot write to the cache of downloads",
            where=str(path),
            why=error.strerror or str(error),
            hint="free some space or name another folder with --cache-dir, and run the same "
            "command again: it goes on where it stopped",
        ) from error
