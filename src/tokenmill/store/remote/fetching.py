"""The fetcher: a process that downloads parts of objects into files and verifies them.

Loading processes fork, and threads of the object store client do not survive a fork. So each
process has its own fetcher. It answers requests in any order.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from tokenmill.core.child import Parent
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import MissingObjectError, StorageError, VerificationError
from tokenmill.store.canonical import MAX_JSON_BYTES
from tokenmill.store.cloud.client import Client
from tokenmill.store.digests import BLOCK_BYTES, block_digests, file_digest
from tokenmill.store.files import storage_errors, temporary_folder, whole_file
from tokenmill.store.remote.fetcher import Answer, FetchBlocks, FetchFile, ListFolder, Request

TRIES = 3
SOON_SECONDS = 5
"""Requests that fail sooner are retried; otherwise the client has already retried for minutes."""
BLOCKS_AT_ONCE, FILES_AT_ONCE = 48, 16
"""Number of concurrent requests. Files do not delay blocks, because they are for later steps."""
PIECES_AHEAD = 4
"""Pieces of one large file that are fetched at a time."""


class Fetching:
    """Carries out requests to one store.

    Raises, in `carry_out`:
        VerificationError: the data in the store is damaged.
        StorageError: the store or the cache's file system fails.
        UserError: the store denied access.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._unfinished: Path | None = None
        self._resources = ExitStack()

    def close(self) -> None:
        """Remove the folder for unfinished files."""
        self._resources.close()

    def carry_out(self, request: Request) -> tuple[dict[str, int], int]:
        """Carry out a request; return sizes by name if it lists objects, and the bytes fetched."""
        if isinstance(request, ListFolder):
            return {found.key: found.num_bytes for found in self._client.list(request.prefix)}, 0
        if isinstance(request, FetchBlocks):
            return {}, self._tried(lambda: self._blocks(request))
        return {}, self._tried(lambda: self._file(request))

    def _tried(self, work: Callable[[], int]) -> int:
        """Return what some work returns: the bytes it fetched. It may be tried several times."""
        tries = 0
        while True:
            tries += 1
            began, last = time.monotonic(), tries == TRIES
            try:
                return work()
            except MissingObjectError:
                raise
            except VerificationError:
                if last:
                    raise
            except StorageError as error:
                is_of_cache = error.__cause__ is not None
                is_given_up = time.monotonic() - began > SOON_SECONDS
                if last or is_of_cache or is_given_up:
                    raise

    def _blocks(self, request: FetchBlocks) -> int:
        with (
            storage_errors("write into the cache", Path(request.path)),
            open(request.path, "r+b", buffering=0) as file,
        ):
            descriptor = file.fileno()
            there = os.pread(descriptor, request.num_bytes, request.start)
            if _digests(there) == request.digests:
                return 0
            stop = request.start + request.num_bytes
            data = self._client.get_range(request.key, request.start, stop)
            for place, (found, known) in enumerate(
                zip(_digests(data), request.digests, strict=True)
            ):
                if found != known:
                    at = request.start + place * BLOCK_BYTES
                    why = f"the digest of the block at byte {at} differs"
                    raise self._damaged(request.key, why)
            _write(descriptor, data, request.start)
            return len(data)

    def _file(self, request: FetchFile) -> int:
        size = request.num_bytes
        if size is None:
            found = self._client.head(request.key)
            if found is None:
                raise MissingObjectError("cannot find an object", where=self._name(request.key))
            size = found.num_bytes
            if size > MAX_JSON_BYTES:
                why = f"it has {size} bytes; the limit is {MAX_JSON_BYTES}"
                raise VerificationError(
                    "an object is too large", where=self._name(request.key), why=why
                )
        path = Path(request.path)
        if request.is_compared and _is_there(path, size, request.digest):
            return 0
        writing = self._unflushed if request.is_compared else whole_file
        with storage_errors("write into the cache", path), writing(path) as unfinished:
            with open(unfinished, "xb") as file:
                for piece in self._client.pieces(request.key, size, PIECES_AHEAD):
                    file.write(piece)
            if request.digest and file_digest(unfinished) != request.digest:
                why = "its digest differs from the stored one"
                raise self._damaged(request.key, why)
        return size

    @contextmanager
    def _unflushed(self, path: Path) -> Iterator[Path]:
        """Provide a file that becomes `path`; it is not flushed, so a power cut may damage it."""
        with self._lock:
            if self._unfinished is None:
                folder = temporary_folder(path.with_name("unfinished"))
                self._unfinished = self._resources.enter_context(folder)
        unfinished = self._unfinished / path.name
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)

    def _name(self, key: str) -> str:
        return f"{self._client.location}/{key}"

    def _damaged(self, key: str, why: str) -> VerificationError:
        hint = "restore the object from a copy; tokenmill verify lists all damaged files"
        return VerificationError(
            "a file of the dataset is damaged", where=self._name(key), why=why, hint=hint
        )


def _is_there(path: Path, size: int, digest: str) -> bool:
    with storage_errors("read from the cache", path):
        try:
            is_of_size = path.stat().st_size == size
        except FileNotFoundError:
            return False
        return is_of_size and file_digest(path) == digest


def _digests(data: bytes) -> list[int]:
    digests: list[int] = np.frombuffer(block_digests(memoryview(data)), "<u8").tolist()
    return digests


def _write(descriptor: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written


def _answer(fetching: Fetching, parent: Parent, number: int, request: Request) -> None:
    try:
        sizes, num_bytes = fetching.carry_out(request)
        answer = Answer(number=number, sizes=sizes, num_bytes=num_bytes)
    except BaseException as error:
        answer = Answer(number=number, failure=ErrorRecord.of(error))
    parent.send(answer)


def main() -> None:
    """Serve the process that started this one."""
    parent = Parent(str | list[tuple[int, Request]])
    fetching = Fetching(Client(parent.receive()[0]))
    parent.at_end = fetching.close
    blocks, files = ThreadPoolExecutor(BLOCKS_AT_ONCE), ThreadPoolExecutor(FILES_AT_ONCE)
    while True:
        for number, request in parent.receive()[0]:
            pool = blocks if isinstance(request, FetchBlocks) else files
            pool.submit(_answer, fetching, parent, number, request)
