"""Download of the token indexes and block digests of a dataset in a bucket, by shard."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from tokenmill.store.manifest import FileEntry
from tokenmill.store.remote.fetcher import Fetcher
from tokenmill.store.remote.messages import FetchFile


class IndexFiles:
    """The `.idx` and `.xxh3` files of shards in a cache.

    Each process verifies their digests on first use, even if they were cached before. Truncated or
    damaged files are downloaded again.
    """

    def __init__(self, fetcher: Fetcher, path_of: Callable[[str], Path]) -> None:
        self._fetcher, self._path_of = fetcher, path_of
        self._pid = 0

    def announce(self, files: Collection[FileEntry]) -> None:
        """Start to download files."""
        with self._fetcher.alone():
            self._announce(files)

    def _announce(self, files: Collection[FileEntry]) -> None:
        self._begin_in_this_process()
        requests: list[FetchFile] = []
        for file in files:
            if file.name not in self._known:
                request = FetchFile(
                    number=self._fetcher.next_number(),
                    key=file.name,
                    path=str(self._path_of(file.name)),
                    num_bytes=file.bytes,
                    digest=file.xxh3_128,
                    is_compared=True,
                )
                self._known.add(file.name)
                self._coming[file.name] = request.number
                requests.append(request)
        if requests:
            self._fetcher.send(requests)

    def has(self, files: Collection[FileEntry]) -> bool:
        """Return whether all of these announced files have arrived."""
        with self._fetcher.alone():
            self._begin_in_this_process()
            self._fetcher.look()
            numbers = (self._coming.get(file.name) for file in files)
            return not any(number and self._fetcher.is_running(number) for number in numbers)

    def obtain(self, files: Collection[FileEntry]) -> None:
        """Wait until files are in the cache.

        Raises:
            VerificationError: a file is damaged, or its name points outside the cache.
            UserError: the store denied access.
            StorageError: the store or the cache's file system fails.
        """
        with self._fetcher.alone():
            self._obtain(files)

    def _obtain(self, files: Collection[FileEntry]) -> None:
        self._begin_in_this_process()
        for file in files:
            if file.name not in self._coming and not self._path_of(file.name).is_file():
                self._known.discard(file.name)
        self._announce(files)
        names = {self._coming[file.name]: file.name for file in files if file.name in self._coming}
        for answer in self._fetcher.wait(list(names)):
            del self._coming[names[answer.number]]
            if answer.failure is not None:
                self._known.discard(names[answer.number])
                raise answer.failure.rebuild()

    def _begin_in_this_process(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._known: set[str] = set()
            self._coming: dict[str, int] = {}
