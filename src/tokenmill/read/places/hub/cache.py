"""The cache of huggingface_hub, so that downloads are shared with other tools.

    datasets--OWNER--NAME/blobs/ETAG            the bytes, under their digest
    datasets--OWNER--NAME/snapshots/COMMIT/...  links to blobs, under the names of the files
    datasets--OWNER--NAME/refs/REVISION         the last known commit of a branch or tag
    datasets--OWNER--NAME/listings/...          tokenmill's: the files of a name at a commit
    datasets--OWNER--NAME/parts/ETAG            tokenmill's: partial blob of a stopped download
    datasets--OWNER--NAME/parts/ETAG.HOST.PID.X tokenmill's: of a running download; X is random

See https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import xxhash

from tokenmill.core.errors import StorageError
from tokenmill.core.paths import local_path
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.names import HubName, is_commit
from tokenmill.read.places.hub.selection import RULES

LEFT_SECONDS = 86_400.0
"""Seconds without a write after which a part of another machine is taken over."""
_OWNED_PART = re.compile(r"\.([\w-]*)\.(\d{1,9})\.[0-9a-f]{8}$")
_HOST = re.sub(r"[^\w-]", "_", socket.gethostname())


class HubCache:
    """A cache folder of downloaded files."""

    def __init__(self, folder: str | None) -> None:
        from huggingface_hub import constants

        name = os.path.expanduser(folder or constants.HF_HUB_CACHE)  # noqa: PTH111 - never fails
        self.folder = local_path(name, "the cache").resolve()

    def blob(self, file: HubFile) -> Path:
        """Return the path of the blob of a file."""
        return self._of(file.repo) / "blobs" / file.etag

    def take_part(self, file: HubFile) -> Path:
        """Provide a part file that no other download writes to.

        It contains the largest part that earlier downloads have left; other leftovers are removed.
        """
        self.blob(file).parent.mkdir(parents=True, exist_ok=True)
        folder = self._parts(file)
        folder.mkdir(exist_ok=True)
        own = folder / f"{file.etag}.{_HOST}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        for _, left in self._left_parts(file):
            with contextlib.suppress(FileNotFoundError):  # another download was faster
                left.unlink() if own.exists() else left.rename(own)
        own.touch()
        return own

    def leave_part(self, file: HubFile, part: Path) -> None:
        """Keep a partial download for the next download of the blob."""
        with contextlib.suppress(OSError):
            part.replace(self._parts(file) / file.etag)

    def held_bytes(self, file: HubFile) -> int:
        """Return the number of bytes of a file that are already cached."""
        if has_size(self.blob(file), file.num_bytes):
            return file.num_bytes
        largest = next(iter(self._left_parts(file)), (0, None))
        return min(largest[0], file.num_bytes)

    def _left_parts(self, file: HubFile) -> list[tuple[int, Path]]:
        """Return sizes and paths of parts that no download writes to, largest first."""
        found = []
        for path in self._parts(file).glob(f"{file.etag}*"):
            with contextlib.suppress(FileNotFoundError):  # another download has taken it
                status = path.stat()
                if _is_left(path.name, status.st_mtime):
                    found.append((status.st_size, path))
        return sorted(found, reverse=True)

    def _parts(self, file: HubFile) -> Path:
        return self._of(file.repo) / "parts"

    def find(self, file: HubFile) -> Path | None:
        """Return the path of a completely cached file, or None."""
        path = self._pointer(file)
        return path if has_size(path, file.num_bytes) else None

    def name_blob(self, file: HubFile) -> Path:
        """Link a blob under the name of its file at a commit."""
        path = self._pointer(file)
        with cache_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            link = _temporary(path)
            link.symlink_to(os.path.relpath(self.blob(file), path.parent))
            link.replace(path)
        return path

    def remembered_commit(self, name: HubName) -> str:
        """Return the last known commit of a revision, or ""."""
        path = self._of(name.repo) / "refs" / name.revision
        with contextlib.suppress(OSError, UnicodeDecodeError):
            commit = path.read_text(encoding="ascii").strip()
            return commit if is_commit(commit) else ""
        return ""

    def remember_commit(self, name: HubName, commit: str) -> None:
        """Store the current commit of a revision."""
        _keep(self._of(name.repo) / "refs" / name.revision, commit.encode())

    def listing(self, name: HubName) -> list[HubFile] | None:
        """Return the stored listing of a name at a commit, or None if there is no usable one."""
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
        """Remove all listings of a commit, because a listed file was wrong."""
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


def _is_left(name: str, mtime: float) -> bool:
    """Return whether the download that wrote a part has ended, for example because of a kill."""
    owner = _OWNED_PART.search(name)
    if owner is None or (owner[1] == _HOST and not _is_alive(int(owner[2]))):
        return True
    return time.time() - mtime > LEFT_SECONDS


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def has_size(path: Path, num_bytes: int) -> bool:
    """Return whether a file exists with this size; it may have been truncated."""
    return path.is_file() and path.stat().st_size == num_bytes


def _keep(path: Path, data: bytes) -> None:
    """Store data that saves a later request; ignore a cache that is not writable."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = _temporary(path)
        part.write_bytes(data)
        part.replace(path)


def _temporary(path: Path) -> Path:
    """Return a name next to `path` that no other process or thread uses."""
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
            "cannot write to the download cache",
            where=str(path),
            why=error.strerror or str(error),
            hint="free some space or give another folder with --cache-dir, then run the same "
            "command again; it resumes where it stopped",
        ) from error
