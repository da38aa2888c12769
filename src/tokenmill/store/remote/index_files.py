"""Token indexes and block digests of a dataset in a bucket: brought shard by shard."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from tokenmill.store.manifest import ShardEntry
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

    def announce(self, shards: Collection[ShardEntry]) -> None:
        """Begin to bring those of some shards."""
        self._begin_in_this_process()
        requests: list[FetchFile] = []
        for shard in shards:
            index = shard.files[1].name
            if index not in self._known:
                self._known.add(index)
                asked = [
                    FetchFile(
                        number=self._fetcher.next_number(),
                        key=file.name,
                        path=str(self._path_of(file.name)),
                        num_bytes=file.bytes,
                        digest=file.xxh3_128,
                        is_compared=True,
                    )
                    for file in shard.files[1:3]
                ]
                self._coming[index] = {request.number for request in asked}
                requests += asked
        if requests:
            self._fetcher.send(requests)

    def has(self, shards: Collection[ShardEntry]) -> bool:
        """Whether nothing of some shards, which were announced, is still on its way."""
        self._begin_in_this_process()
        self._fetcher.look()
        is_running = self._fetcher.is_running
        return not any(is_running(number) for shard in shards for number in self._numbers(shard))

    def obtain(self, shards: Collection[ShardEntry]) -> None:
        """Return once those of some shards are there.

        Raises:
            VerificationError: one is not what was written, or leads out of the cache.
            UserError: the store does not let the user in.
            StorageError: the store or the cache's file system fails.
        """
        self._begin_in_this_process()
        for shard in shards:
            index = shard.files[1].name
            there = all(self._path_of(file.name).is_file() for file in shard.files[1:3])
            if not there and index not in self._coming:
                self._known.discard(index)
        self.announce(shards)
        names = {number: shard.files[1].name for shard in shards for number in self._numbers(shard)}
        for answer in self._fetcher.wait(list(names)):
            index = names[answer.number]
            self._coming.get(index, set()).discard(answer.number)
            if not self._coming.get(index):
                self._coming.pop(index, None)
            if answer.failure is not None:
                raise answer.failure.rebuild()

    def _numbers(self, shard: ShardEntry) -> Collection[int]:
        """Of the requests that have not been waited for."""
        return self._coming.get(shard.files[1].name, ())

    def _begin_in_this_process(self) -> None:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._known: set[str] = set()
            self._coming: dict[str, set[int]] = {}
