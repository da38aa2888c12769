"""Download of files from the Hub into the local cache, concurrently and with verified digests.

The library's `hf_hub_download` deletes a partial file if it fails or is stopped, does not verify
digests, and sleeps as long as a server asks. So this module downloads the files and stores them at
the same paths.

Every download writes its own part file and renames it when it is complete. It uses no locks,
because `flock` always succeeds on some network file systems. If two builds need the same file at
the same time, both download it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from typing import Any, BinaryIO

from tokenmill.core.errors import DamagedInputError, StorageError
from tokenmill.read.places.hub.background import in_background
from tokenmill.read.places.hub.cache import HubCache, cache_errors, has_size
from tokenmill.read.places.hub.client import HubClient
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.place import FetchListener, FetchProgress

NUM_THREADS = 8
REFRESH_SECONDS = 0.25
STOPPING_SECONDS = 0.5
"""Time for threads to rename their parts so that the next download finds them."""
READ_BYTES = 1 << 20


class _Cancelled(Exception):
    """Raised in a download thread to stop it."""


def download(cache: HubCache, files: Sequence[HubFile], listener: FetchListener) -> None:
    """Download all missing files into the cache, and report progress to the listener.

    Raises:
        TokenmillError: a file cannot be downloaded or stored. Partial downloads are kept.
    """
    missing = list(dict.fromkeys(file for file in files if cache.find(file) is None))
    if not missing:
        return
    _require_room(cache, missing)
    _Download(cache, files, missing).run(listener)


class _Download:
    """One call of `download`."""

    def __init__(self, cache: HubCache, files: Sequence[HubFile], missing: list[HubFile]) -> None:
        self._cache = cache
        self._files = files
        self._missing = missing
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._num_left = len(missing)
        self._bytes_left = sum(file.num_bytes for file in missing)

    def run(self, listener: FetchListener) -> None:
        """Download files until all are complete or one fails."""
        client = HubClient(self._check)
        waiting = deque(self._missing)
        running = {
            in_background(lambda: self._fetch_all(client, waiting), "download")
            for _ in range(min(NUM_THREADS, len(waiting)))
        }
        try:
            while running:
                done, running = wait(running, REFRESH_SECONDS, FIRST_EXCEPTION)
                listener(self._progress())
                for future in done:
                    future.result()
        except BaseException:
            self._stopping.set()
            wait(running, STOPPING_SECONDS)
            raise

    def _fetch_all(self, client: HubClient, waiting: deque[HubFile]) -> None:
        while True:
            try:
                file = waiting.popleft()
            except IndexError:
                return
            with cache_errors(self._cache.blob(file)):
                for num_bytes in fetch_blob(client, file, self._cache):
                    self._count(num_bytes)
            self._cache.name_blob(file)
            self._count(0, num_files=1)

    def _check(self) -> None:
        if self._stopping.is_set():
            raise _Cancelled

    def _count(self, num_bytes: int, num_files: int = 0) -> None:
        with self._lock:
            self._bytes_left -= num_bytes
            self._num_left -= num_files

    def _progress(self) -> FetchProgress:
        total = sum(file.num_bytes for file in self._files)
        num_files = len(self._files)
        return FetchProgress(total - self._bytes_left, total, num_files - self._num_left, num_files)


def fetch_blob(client: HubClient, file: HubFile, cache: HubCache) -> Iterator[int]:
    """Download the missing bytes of a blob; yield numbers of bytes, first of earlier attempts.

    Raises:
        DamagedInputError: the digest differs from the one that the Hub gave.
    """
    blob = cache.blob(file)
    if has_size(blob, file.num_bytes):
        yield file.num_bytes
        return
    part = cache.take_part(file)
    try:
        with open(part, "r+b") as stream:
            yield from _complete(client, file, stream)
    except DamagedInputError:
        part.unlink(missing_ok=True)
        raise
    except BaseException:
        cache.leave_part(file, part)
        raise
    if has_size(blob, file.num_bytes):  # another process was faster and may be reading it
        part.unlink(missing_ok=True)
    else:
        part.replace(blob)


def _complete(client: HubClient, file: HubFile, stream: BinaryIO) -> Iterator[int]:
    digest = _digest_of(file)
    while piece := stream.read(READ_BYTES):
        digest.update(piece)
        yield len(piece)
    for piece in client.chunks(file, stream.tell(), file.num_bytes):
        stream.write(piece)
        digest.update(piece)
        yield len(piece)
    if stream.tell() != file.num_bytes or digest.hexdigest() != file.etag:
        raise DamagedInputError(
            "a file from the Hub is damaged",
            where=file.origin,
            why=f"its digest is {digest.hexdigest()}, not {file.etag}",
            hint="run the same command again to download the file again",
        )
    stream.flush()
    os.fsync(stream.fileno())


def _digest_of(file: HubFile) -> Any:
    """Return the hash object for a file; for git blobs, it starts with git's header."""
    if len(file.etag) == len(hashlib.sha256().hexdigest()):
        return hashlib.sha256()
    header = f"blob {file.num_bytes}\0".encode()
    return hashlib.sha1(header, usedforsecurity=False)


def _require_room(cache: HubCache, missing: Sequence[HubFile]) -> None:
    blobs = {cache.blob(file): file for file in missing}
    with cache_errors(cache.folder):
        cache.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(cache.folder).free
        needed = sum(file.num_bytes - cache.held_bytes(file) for file in blobs.values())
    if needed > free:
        raise StorageError(
            "not enough disk space for the download",
            where=str(cache.folder),
            why=f"it needs {needed:,} bytes; {free:,} are free",
            hint="give another folder with --cache-dir, or read without downloading: --streaming",
        )
