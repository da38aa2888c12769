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
from tokenmill.read.hub.client import HubFile
from tokenmill.read.hub.names import HubName


class HubCache:
    """One folder of downloaded files."""

    def __init__(self, folder: str | None) -> None:
        from huggingface_hub import constants

        self.folder = Path(folder or constants.HF_HUB_CACHE).expanduser().resolve()

    def blob(self, file: HubFile) -> Path:
        """Where the bytes of a file are kept."""
        return self._of(file.repo) / "blobs" / file.etag

    def find(self, file: HubFile) -> Path | None:
        """A file that is complete in the cache, whoever has put it there."""
        path = self._pointer(file)
        return path if path.is_file() and path.stat().st_size == file.num_bytes else None

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
        return path.read_text(encoding="ascii").strip() if path.is_file() else ""

    def remember_commit(self, name: HubName, commit: str) -> None:
        """Store what a revision stands for now."""
        _keep(self._of(name.repo) / "refs" / name.revision, commit.encode())

    def listing(self, name: HubName) -> list[HubFile] | None:
        """The stored files of a name at a commit: they never change."""
        path = self._listing_path(name)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(path.read_bytes(), type=list[HubFile])
        return None

    def store_listing(self, name: HubName, files: list[HubFile]) -> None:
        """Store the files of a name at a commit."""
        _keep(self._listing_path(name), msgspec.json.encode(files))

    def _listing_path(self, name: HubName) -> Path:
        key = xxhash.xxh3_64_hexdigest(name.path.encode())
        return self._of(name.repo) / "listings" / f"{name.revision}-{key}.json"

    def _pointer(self, file: HubFile) -> Path:
        return self._of(file.repo) / "snapshots" / file.commit / file.path

    def _of(self, repo: str) -> Path:
        return self.folder / "--".join(["datasets", *repo.split("/")])


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
