"""The library's own cache of files, so that other tools find what was downloaded, and it theirs.

    datasets--OWNER--NAME/blobs/ETAG            the bytes, under their digest
    datasets--OWNER--NAME/snapshots/COMMIT/...  links to blobs, under the files' own names
    datasets--OWNER--NAME/refs/REVISION         the commit that a branch or tag stood for
    datasets--OWNER--NAME/listings/...          ours: the files that a name stands for at a commit
    datasets--OWNER--NAME/parts/ETAG            ours: what a stopped download has got of a blob
    datasets--OWNER--NAME/parts/ETAG.HOST.PID.X ours: what a running one has got; X is random

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

from tokenmill.errors import StorageError
from tokenmill.paths import local_path
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.names import HubName, is_commit
from tokenmill.read.places.hub.selection import RULES

LEFT_SECONDS = 86_400.0
"""A part of another machine that nobody has written to for so long is taken over."""
_OWNED_PART = re.compile(r"\.([\w-]*)\.(\d{1,9})\.[0-9a-f]{8}$")
_HOST = re.sub(r"[^\w-]", "_", socket.gethostname())


class HubCache:
    """One folder of downloaded files."""

    def __init__(self, folder: str | None) -> None:
        from huggingface_hub import constants

        name = os.path.expanduser(folder or constants.HF_HUB_CACHE)  # noqa: PTH111 - never fails
        self.folder = local_path(name, "the cache").resolve()

    def blob(self, file: HubFile) -> Path:
        """Where the bytes of a file are kept."""
        return self._of(file.repo) / "blobs" / file.etag

    def take_part(self, file: HubFile) -> Path:
        """A file for the bytes of a blob that no other download writes to. It holds what is left of
        an earlier try; the rest of what such tries left is removed.
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
        """Let the next download of a blob take what has come of it."""
        with contextlib.suppress(OSError):
            part.replace(self._parts(file) / file.etag)

    def held_bytes(self, file: HubFile) -> int:
        """How many bytes of a file need not be fetched."""
        if has_size(self.blob(file), file.num_bytes):
            return file.num_bytes
        largest = next(iter(self._left_parts(file)), (0, None))
        return min(largest[0], file.num_bytes)

    def _left_parts(self, file: HubFile) -> list[tuple[int, Path]]:
        """Sizes and paths of parts that no download writes to, the largest first."""
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


def _is_left(name: str, mtime: float) -> bool:
    """Whether the download that wrote a part has ended: a killed one cannot rename its part."""
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
            "cannot write to the download cache",
            where=str(path),
            why=error.strerror or str(error),
            hint="free some space or give another folder with --cache-dir, then run the same "
            "command again; it resumes where it stopped",
        ) from error
