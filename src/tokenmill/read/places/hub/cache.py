"""The cache of huggingface_hub, and downloads into it.

    datasets--OWNER--NAME/blobs/ETAG            the bytes, under their digest
    datasets--OWNER--NAME/snapshots/COMMIT/...  links to blobs, under the names of the files
    datasets--OWNER--NAME/refs/REVISION         the last known commit of a branch or tag
    datasets--OWNER--NAME/listings/...          tokenmill's: the files of a name at a commit

See https://huggingface.co/docs/huggingface_hub/guides/manage-cache. `hf_hub_download` does not
compare a file with its digest, so this module does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from tokenmill.core.errors import DamagedInputError, StorageError
from tokenmill.core.paths import local_path
from tokenmill.read.places.hub.client import endpoint, in_background, tried
from tokenmill.read.places.hub.names import HubFile, HubName, is_commit
from tokenmill.read.places.hub.selection import RULES
from tokenmill.read.source import FetchListener, FetchProgress

NUM_THREADS = 8
REFRESH_SECONDS = 0.25


class HubCache:
    """A cache folder of downloaded files."""

    def __init__(self, folder: str | None) -> None:
        from huggingface_hub import constants

        name = os.path.expanduser(folder or constants.HF_HUB_CACHE)  # noqa: PTH111 - never fails
        self.folder = local_path(name, "the cache").resolve()

    def blob(self, file: HubFile) -> Path:
        """Return the path of the blob of a file."""
        return self._of(file.repo) / "blobs" / file.etag

    def find(self, file: HubFile) -> Path | None:
        """Return the path of a completely cached file, or None."""
        path = self._of(file.repo) / "snapshots" / file.commit / file.path
        return path if has_size(path, file.num_bytes) else None

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
        with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
            data = self._listing_path(name).read_bytes()
            files = msgspec.json.decode(data, type=list[HubFile])
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
        key = xxhash.xxh3_64_hexdigest(f"{RULES} {name}".encode())
        return self._of(name.repo) / "listings" / f"{name.revision}-{key}.json"

    def _of(self, repo: str) -> Path:
        return self.folder / f"datasets--{repo.replace('/', '--')}"


def download(cache: HubCache, files: Sequence[HubFile], listener: FetchListener) -> None:
    """Download all missing files into the cache, and report progress to the listener.

    Raises:
        TokenmillError: a file cannot be downloaded or stored, or differs from its digest.
    """
    missing = list(dict.fromkeys(file for file in files if cache.find(file) is None))
    if missing:
        _require_room(cache, missing)
        _Download(cache, files, missing).run(listener)


class _Download:
    """One call of `download`."""

    def __init__(self, cache: HubCache, files: Sequence[HubFile], missing: list[HubFile]) -> None:
        self._cache = cache
        self._waiting = deque(missing)
        self._total_bytes, self._num_files = sum(file.num_bytes for file in files), len(files)
        self._done_bytes = self._total_bytes - sum(file.num_bytes for file in missing)
        self._done_files = self._num_files - len(missing)
        self._lock = threading.Lock()

    def run(self, listener: FetchListener) -> None:
        """Download files until all are complete or one fails."""
        running = {
            in_background(self._fetch_all, "download")
            for _ in range(min(NUM_THREADS, len(self._waiting)))
        }
        try:
            while running:
                done, running = wait(running, REFRESH_SECONDS, FIRST_EXCEPTION)
                listener(
                    FetchProgress(
                        min(self._done_bytes, self._total_bytes),
                        self._total_bytes,
                        self._done_files,
                        self._num_files,
                    )
                )
                for future in done:
                    future.result()
        finally:
            self._waiting.clear()

    def _fetch_all(self) -> None:
        while True:
            try:
                file = self._waiting.popleft()
            except IndexError:
                return
            with _cache_errors(self._cache.blob(file)):
                self._fetch(file)
            with self._lock:
                self._done_files += 1

    def _fetch(self, file: HubFile) -> None:
        from huggingface_hub import hf_hub_download

        blob = self._cache.blob(file)
        if blob.exists() and not has_size(blob, file.num_bytes):
            blob.unlink(missing_ok=True)  # it has been truncated
        path = tried(
            lambda: hf_hub_download(
                file.repo,
                file.path,
                repo_type="dataset",
                revision=file.commit,
                cache_dir=self._cache.folder,
                endpoint=endpoint(),
                library_name="tokenmill",
                tqdm_class=_counter(self._count),
            ),
            file.origin,
            lambda: None,
        )
        found = _digest_of(Path(path), file)
        if found != file.etag:
            Path(path).resolve().unlink()
            Path(path).unlink(missing_ok=True)
            raise DamagedInputError(
                "a file from the Hub is damaged, or changed after it was listed",
                where=file.origin,
                why=f"its digest is {found}, not {file.etag}",
                hint="run the same command again to list and download it again; if the error "
                "persists, check whether a proxy or mirror serves another file",
            )

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self._done_bytes += num_bytes


def _counter(count: Any) -> Any:
    """Return a class of progress bars that show nothing and call `count` with numbers of bytes."""
    from tqdm import tqdm

    class Counter(tqdm):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

        def update(self, n: float | None = 1) -> None:
            count(int(n or 0))

        def update_transfer(self, n: float) -> None:
            """Called for bytes that `update` counts, too."""

    return Counter


def _digest_of(path: Path, file: HubFile) -> str:
    """Return the digest of the kind that the Hub gives: SHA-256, or the SHA-1 of a git blob."""
    digest: Any = hashlib.sha256()
    if len(file.etag) != len(digest.hexdigest()):
        header = f"blob {path.stat().st_size}\0".encode()
        digest = hashlib.sha1(header, usedforsecurity=False)
    with open(path, "rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return str(digest.hexdigest())


def _require_room(cache: HubCache, missing: Sequence[HubFile]) -> None:
    blobs = {cache.blob(file): file.num_bytes for file in missing}
    with _cache_errors(cache.folder):
        cache.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(cache.folder).free
        needed = sum(size for blob, size in blobs.items() if not has_size(blob, size))
    if needed > free:
        raise StorageError(
            "not enough disk space for the download",
            where=str(cache.folder),
            why=f"it needs {needed:,} bytes; {free:,} are free",
            hint="give another folder with --cache-dir, or read without downloading: --streaming",
        )


def has_size(path: Path, num_bytes: int) -> bool:
    """Return whether a file exists with this size; it may have been truncated."""
    return path.is_file() and path.stat().st_size == num_bytes


def _keep(path: Path, data: bytes) -> None:
    """Store data that saves a later request; ignore a cache that is not writable."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
        part.write_bytes(data)
        part.replace(path)


@contextmanager
def _cache_errors(path: Path) -> Iterator[None]:
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
