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
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from tokenmill.core.errors import DamagedInputError, StorageError
from tokenmill.core.paths import local_path
from tokenmill.read.places.hub.client import endpoint, tried
from tokenmill.read.places.hub.names import HubFile, HubName, is_commit
from tokenmill.read.places.hub.selection import RULES
from tokenmill.read.source import FetchListener, FetchProgress
from tokenmill.store.cloud.loop import in_background
from tokenmill.store.files import written_beside

NUM_THREADS = 8
REFRESH_SECONDS = 0.25
GIT_DIGITS = 40


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
    missing = deque(dict.fromkeys(file for file in files if cache.find(file) is None))
    if not missing:
        return
    _require_room(cache, missing)
    total_bytes = sum(file.num_bytes for file in files)
    done_bytes = total_bytes - sum(file.num_bytes for file in missing)
    done_files = len(files) - len(missing)
    lock = threading.Lock()

    def count(num_bytes: int, num_files: int = 0) -> None:
        nonlocal done_bytes, done_files
        with lock:
            done_bytes, done_files = done_bytes + num_bytes, done_files + num_files

    def next_file() -> HubFile | None:
        with lock:
            return missing.popleft() if missing else None

    def fetch_all() -> None:
        for file in iter(next_file, None):
            with _cache_errors(cache.blob(file)):
                _fetch(cache, file, _counter(count))
            count(0, num_files=1)

    running = {in_background(fetch_all, "download") for _ in range(min(NUM_THREADS, len(missing)))}
    try:
        while running:
            done, running = wait(running, REFRESH_SECONDS, FIRST_EXCEPTION)
            listener(
                FetchProgress(min(done_bytes, total_bytes), total_bytes, done_files, len(files))
            )
            for future in done:
                future.result()
    finally:
        missing.clear()


def _fetch(cache: HubCache, file: HubFile, counter: Any) -> None:
    """Download a file, and compare it with its digest."""
    from huggingface_hub import hf_hub_download

    blob = cache.blob(file)
    if blob.exists() and not has_size(blob, file.num_bytes):
        blob.unlink(missing_ok=True)  # it has been truncated
    path = tried(
        lambda: hf_hub_download(
            file.repo,
            file.path,
            repo_type="dataset",
            revision=file.commit,
            cache_dir=cache.folder,
            endpoint=endpoint(),
            library_name="tokenmill",
            tqdm_class=counter,
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
    new: Any = hashlib.sha256
    if len(file.etag) == GIT_DIGITS:
        header = f"blob {path.stat().st_size}\0".encode()
        new = partial(hashlib.sha1, header, usedforsecurity=False)
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, new).hexdigest()


def _require_room(cache: HubCache, missing: Iterable[HubFile]) -> None:
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
    with contextlib.suppress(OSError), written_beside(path, data, durable=False) as part:
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
