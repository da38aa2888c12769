"""Token indexes and block digests of a dataset in a bucket: brought shard by shard."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from tokenmill.store.manifest import FileEntry
from tokenmill.store.remote.fetcher import Fetcher
from tokenmill.store.remote.messages import FetchFile


class IndexFiles:
    """The `.idx` and `.xxh3` of shards, in a cache.

    Each process compares them with their digests when it first needs them, also if the cache held
    them before: what a crash has cut, or what was damaged there, is brought again.
    """

    def __init__(self, fetcher: Fetcher, path_of: Callable[[str], Path]) -> None:
        self._fetcher, self._path_of = fetcher, path_of
        self._pid = 0

    def announce(self, files: Collection[FileEntry]) -> None:
        """Begin to bring some files."""
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
        """Whether none of some files, which were announced, is still on its way."""
        with self._fetcher.alone():
            self._begin_in_this_process()
            self._fetcher.look()
            numbers = (self._coming.get(file.name) for file in files)
            return not any(number and self._fetcher.is_running(number) for number in numbers)

    def obtain(self, files: Collection[FileEntry]) -> None:
        """Return once some files are there.

        Raises:
            VerificationError: one is not what was written, or leads out of the cache.
            UserError: the store does not let the user in.
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
