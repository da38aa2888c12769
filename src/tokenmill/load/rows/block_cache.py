"""A cache for blocks of tokens from a bucket: fetches, awaits and deletes them.

Without a limit, processes share the cache: all write the same bytes to the same positions, and
nothing is deleted. With a limit, each reader has its own token files, because a block must not be
deleted while another reader uses it.
"""

from __future__ import annotations

import os
import shutil
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.store.dataset import Shard
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.remote.cache_folder import (
    check_punching,
    make_holes,
    private_folder,
    punch_holes,
)
from tokenmill.store.remote.fetcher import FetchBlocks
from tokenmill.store.remote.origin import MOST_JOINED, Origin


class BlockCache:
    """The token files of a reader, and which of their blocks are present, requested or needed.

    Blocks are numbered over all shards; those of shard i start at `first_blocks[i]`. When a block
    is deleted, its bit in `checked` is cleared.
    """

    def __init__(
        self,
        origin: Origin,
        shards: list[Shard],
        first_blocks: Int64Array,
        checked: npt.NDArray[np.uint8],
    ) -> None:
        self._origin, self._shards, self._first_blocks = origin, shards, first_blocks
        self._checked = checked
        limit = origin.cache_bytes
        self._most_blocks = None if limit is None else limit // BLOCK_BYTES
        self._announced: deque[frozenset[int]] = deque()
        self._pid = 0
        self._lock: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether the cache has a limit, so that blocks are deleted."""
        return self._most_blocks is not None

    def begin_in_this_process(self) -> bool:
        """Prepare the cache in a new process, and return whether files must be mapped again.

        Raises:
            StorageError: the file system cannot delete blocks, or another operation failed.
        """
        if self._pid == os.getpid():
            return False
        self._pid = os.getpid()
        self._coming: dict[int, int] = {}
        """Requested blocks, with the number of their request."""
        self._requested: dict[int, list[int]] = {}
        """Open requests, with their blocks."""
        self._there: set[int] = set()
        """Blocks that arrived and have not been used."""
        self._kept: dict[int, None] = {}
        """With a limit: blocks that take space, the most recently used last."""
        self._announced.clear()
        self._folder = self._origin.folder
        if self.is_limited:
            if self._lock is not None:  # inherited from the parent of a fork
                os.close(self._lock)
            self._folder, self._lock = private_folder(self._folder)
            weakref.finalize(self, _remove, self._folder, self._lock, self._pid)
            check_punching(self._folder)
        return True

    def tokens_path(self, number: int) -> Path:
        """Return the path of a shard's token file, with holes for missing blocks."""
        file = self._shards[number].entry.files[0]
        path = self._folder / file.name
        make_holes(path, file.bytes)
        return path

    def announce(self, blocks: Int64Array) -> bool:
        """Request the blocks of the step after the announced ones.

        Return False, and do nothing, if they do not fit in the cache together with those.
        """
        step = frozenset(blocks.tolist())
        self._announced.append(step)
        if not self._make_room(step):
            self._announced.pop()
            return False
        self._request(step)
        return True

    def passed(self) -> None:
        """Release the blocks of the first announced step."""
        if self._announced:
            self._announced.popleft()

    def forget_announced(self) -> None:
        """Forget all announced steps."""
        self._announced.clear()

    def take_back(self) -> None:
        """Undo the last announcement."""
        if self._announced:
            self._announced.pop()

    def check_room(self, steps: Iterable[Int64Array]) -> None:
        """Raise a UserError if the cache cannot hold the blocks of these steps at once."""
        needed: frozenset[int] = frozenset().union(*(blocks.tolist() for blocks in steps))
        if self._most_blocks is not None and len(needed) > self._most_blocks:
            raise self._too_small(BLOCK_BYTES * len(needed))

    def require(self, blocks: Int64Array) -> None:
        """Return once these blocks are present. Each is verified before it is written.

        With a limit, any other block may be deleted.

        Raises:
            UserError: they do not fit in the cache, or the store denies access.
            VerificationError: a block in the store is damaged.
            StorageError: the store or the file system of the cache fails.
        """
        wanted = frozenset(blocks.tolist())
        if not self._make_room(wanted):
            self._announced.clear()  # announced blocks can be fetched again
            if not self._make_room(wanted):
                raise self._too_small(BLOCK_BYTES * len(wanted))
        self._request(wanted)
        numbers = {self._coming[block] for block in wanted if block in self._coming}
        failures = []
        for number, answer in self._origin.fetcher.wait(numbers).items():
            brought = self._requested.pop(number)
            for block in brought:
                del self._coming[block]
            if answer.failure is None:
                self._there.update(brought)
            else:
                failures.append(answer.failure)
        self._there.difference_update(wanted)
        if failures:
            raise failures[0].rebuild()

    def _too_small(self, num_bytes: int) -> UserError:
        """Return the error for a limit that is smaller than the blocks needed at once."""
        return UserError(
            "cache_bytes is too small",
            where=self._origin.location,
            why=f"it is {self._origin.cache_bytes}, but the next steps read {num_bytes} bytes",
            hint=f"set cache_bytes to at least {num_bytes}, or lower prefetch_steps "
            f"(now {self._origin.prefetch_steps})",
        )

    def _request(self, blocks: frozenset[int]) -> None:
        """Request blocks that are neither present nor requested; adjacent ones together."""
        missing = sorted(
            block
            for block in blocks
            if block not in self._coming
            and block not in self._there
            and not self._checked[block >> 3] >> (block & 7) & 1
        )
        runs = list(self._runs(missing))
        if not runs:
            return
        numbers = self._origin.fetcher.send([self._request_for(*run) for run in runs])
        for number, (shard, places) in zip(numbers, runs, strict=True):
            asked = [int(self._first_blocks[shard]) + place for place in places]
            self._requested[number] = asked
            self._coming.update(dict.fromkeys(asked, number))

    def _request_for(self, number: int, places: list[int]) -> FetchBlocks:
        shard = self._shards[number]
        file, start = shard.entry.files[0], places[0] * BLOCK_BYTES
        return FetchBlocks(
            key=file.name,
            path=str(self._folder / file.name),
            start=start,
            num_bytes=min(len(places) * BLOCK_BYTES, file.bytes - start),
            digests=shard.block_digests[places[0] : places[-1] + 1].tolist(),
        )

    def _runs(self, blocks: list[int]) -> Iterator[tuple[int, list[int]]]:
        """Yield shards and runs of adjacent blocks, counted from the shard's first block."""
        shards = np.searchsorted(self._first_blocks, blocks, side="right") - 1
        pairs = zip(shards.tolist(), blocks, strict=True)
        for number, inside in groupby(pairs, key=lambda pair: pair[0]):
            first = int(self._first_blocks[number])
            places = [block - first for _, block in inside]
            for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
                joined = [place for _, place in run]
                for begin in range(0, len(joined), MOST_JOINED):
                    yield number, joined[begin : begin + MOST_JOINED]

    def _make_room(self, wanted: frozenset[int]) -> bool:
        """With a limit: delete the least recently used blocks that no announced step needs.

        Return False if that does not free enough space.
        """
        if self._most_blocks is None:
            return True
        too_many = len(self._kept) + len(wanted - self._kept.keys()) - self._most_blocks
        if too_many > 0:
            needed = wanted.union(*self._announced)
            idle = [block for block in self._kept if block not in needed and self._is_idle(block)]
            if len(idle) < too_many:
                return False
            self._delete(idle[:too_many])
        for block in wanted:
            self._kept.pop(block, None)
            self._kept[block] = None
        return True

    def _is_idle(self, block: int) -> bool:
        """Return whether no request is about to write a block."""
        number = self._coming.get(block)
        if number is None:
            return True
        if self._origin.fetcher.is_running(number):
            return False
        for each in self._requested.pop(number):  # it was fetched and never used
            del self._coming[each]
        self._origin.fetcher.wait([number])
        return True

    def _delete(self, blocks: Iterable[int]) -> None:
        for number, places in self._runs(sorted(blocks)):
            punch_holes(self._folder / self._shards[number].entry.files[0].name, places)
            for block in (int(self._first_blocks[number]) + place for place in places):
                self._checked[block >> 3] &= ~np.uint8(1 << (block & 7))
                self._there.discard(block)
                del self._kept[block]


def _remove(folder: Path, lock: int, pid: int) -> None:
    """Remove the files of a reader, if this process created them."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
