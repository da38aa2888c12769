"""Files of the Hub to the local cache: several at a time, each checked, none fetched twice.

The library's own `hf_hub_download` throws away what it has of a file when it fails, and compares
no digests, so the bytes are fetched here and stored where it would have stored them.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill.errors import DamagedInputError, StorageError
from tokenmill.read.places.hub.access import DownloadListener, DownloadProgress
from tokenmill.read.places.hub.cache import HubCache, cache_errors, has_size
from tokenmill.read.places.hub.client import HubClient
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.patience import Check, pause

LOGGER = logging.getLogger(__name__)

NUM_THREADS = 8
LOCKED_SECONDS = 1.0
REFRESH_SECONDS = 0.25
READ_BYTES = 1 << 20


class _Cancelled(Exception):
    """Unwinds a thread that downloads."""


def download(cache: HubCache, files: Sequence[HubFile], listener: DownloadListener) -> None:
    """Put all files into the cache that are not there yet; the listener hears of it now and then.

    Raises:
        TokenmillError: a file cannot be fetched or stored. What has come is kept.
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

    def run(self, listener: DownloadListener) -> None:
        """Fetch files until all are there, or one cannot be had."""
        client = HubClient(self._check)
        with ThreadPoolExecutor(min(NUM_THREADS, len(self._missing)), "download") as threads:
            running = {threads.submit(self._fetch, client, file) for file in self._missing}
            try:
                while running:
                    done, running = wait(running, REFRESH_SECONDS, FIRST_EXCEPTION)
                    listener(self._progress())
                    for future in done:
                        future.result()
            except BaseException:
                self._stopping.set()
                threads.shutdown(cancel_futures=True)
                raise

    def _fetch(self, client: HubClient, file: HubFile) -> None:
        blob = self._cache.blob(file)
        with cache_errors(blob):
            blob.parent.mkdir(parents=True, exist_ok=True)
            for num_bytes in fetch_blob(client, file, self._cache, self._check):
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

    def _progress(self) -> DownloadProgress:
        total = sum(file.num_bytes for file in self._files)
        num_files = len(self._files)
        return DownloadProgress(
            total - self._bytes_left, total, num_files - self._num_left, num_files
        )


def fetch_blob(client: HubClient, file: HubFile, cache: HubCache, check: Check) -> Iterator[int]:
    """Fetch what a blob misses; yield the numbers of bytes, those of an earlier try first.

    Another process may fetch the same blob: the first one does it, the others wait.

    Raises:
        DamagedInputError: the bytes do not have the digest that the Hub gives.
    """
    blob, part = cache.blob(file), cache.part(file)
    with _own_part(part, file, check) as stream:
        if has_size(blob, file.num_bytes):
            part.unlink()
            yield file.num_bytes
            return
        digest = _digest_of(file)
        while piece := stream.read(READ_BYTES):
            digest.update(piece)
            yield len(piece)
        for piece in client.chunks(file, stream.tell(), file.num_bytes):
            stream.write(piece)
            digest.update(piece)
            yield len(piece)
        if stream.tell() != file.num_bytes or digest.hexdigest() != file.etag:
            part.unlink()
            raise DamagedInputError(
                "a file of the Hub is damaged",
                where=file.origin,
                why=f"its digest is {digest.hexdigest()}, not {file.etag}",
                hint="run the same command again: the file is fetched anew",
            )
        stream.flush()
        os.fsync(stream.fileno())
        part.replace(blob)


@contextmanager
def _own_part(part: Path, file: HubFile, check: Check) -> Iterator[BinaryIO]:
    """The part of a file that has come, at its first byte, for this process alone."""
    announced = False
    while True:
        with open(part, "a+b") as stream:
            while not _locked(stream):
                if not announced:
                    LOGGER.warning("%s: is being fetched already; waiting for that", file.origin)
                    announced = True
                pause(LOCKED_SECONDS, check)
            if _is_at(part, stream):
                stream.seek(0)
                yield stream
                return


def _locked(stream: BinaryIO) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, stream: BinaryIO) -> bool:
    """Whether an open file still has its name: whoever held its lock may have renamed it."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _digest_of(file: HubFile) -> Any:
    """What the digest of a file is computed with; git puts a header before the bytes of a blob."""
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
            "no room for the download",
            where=str(cache.folder),
            why=f"{needed:,} bytes are to come; {free:,} are free",
            hint="name another folder with --cache-dir, or read without keeping: --streaming",
        )
