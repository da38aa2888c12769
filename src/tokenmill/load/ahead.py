"""Read ahead from a bucket: fetch the blocks of the next steps while earlier steps train."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from tokenmill.core.records import Int64Array
from tokenmill.load.rows.block_cache import BlockCache
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.sources import Sources
from tokenmill.load.steps.schedule import GlobalBatch, Schedule

SequencesOf = Callable[[GlobalBatch, int], Int64Array]
"""Returns the sequences of a global batch that this rank reads with the reader of a number."""

_Rows = tuple[RowReader, Int64Array, int]
"""A reader with a cache, the sequences that it reads in a step, and their row length."""

_Blocks = tuple[BlockCache, Int64Array]


class ReadAhead:
    """Announces the next steps to the caches of the readers, in order.

    It only saves time: a block that was not announced is fetched when it is read. It announces the
    shards of twice as many steps, because their indexes tell which blocks are needed. It works on a
    copy of the schedule, because a mixture can only be at one step at a time.
    """

    def __init__(self, sources: Sources, schedule: Schedule) -> None:
        self._sources, self._schedule = sources, schedule
        origins = [reader.dataset.origin for reader in sources.present]
        self._most = max((each.prefetch_steps for each in origins if each is not None), default=0)
        self._is_local = not any(origins)
        self._pid = os.getpid()
        self._next: tuple[int, int] | None = None
        """The next step if steps are taken in order, and the distance between steps."""
        self._num_announced = 0
        self._looked_at: deque[list[_Rows]] = deque()
        """The steps after the announced ones. Only their shards have been announced."""

    def __reduce__(self) -> tuple[type[ReadAhead], tuple[object, ...]]:
        return type(self), (self._sources, self._schedule)

    def before(self, step: int, stride: int, sequences_of: SequencesOf) -> None:
        """Announce a step that is about to be read, and every `stride`-th step after it.

        After a jump to another step, only that step is announced.

        Raises:
            UserError: the cache is too small for the first steps.
        """
        if self._is_local:
            return
        if self._pid != os.getpid():  # a forked process starts with empty caches
            self._next, self._pid = None, os.getpid()
        begins = self._next is None
        self._stand_at(step, stride)
        most = self._most if begins or self._next == (step, stride) else 0
        self._next = (step + stride, stride)
        self._look_at(2 * most + 1 - self._num_announced, stride, sequences_of)
        if begins:
            self._check_room(most + 1)
        while self._looked_at and self._num_announced <= most:
            rows = self._looked_at[0]
            known = (reader.has_shards(sequences, length) for reader, sequences, length in rows)
            if self._num_announced and not all(known):
                break
            if not self._announce(_blocks_of(rows)):
                break
            self._looked_at.popleft()
            self._num_announced += 1
        if not self._num_announced:  # it does not fit: reading it raises the error
            self._next = (step, -1)

    def _stand_at(self, step: int, stride: int) -> None:
        """Forget the steps before this one, or all announced steps after a jump."""
        if self._next == (step, stride):
            for cache in self._caches():
                cache.passed()
            self._num_announced -= 1
            return
        self._ahead = copy.copy(self._schedule)
        self._num_announced, self._last = 0, step - stride
        self._looked_at.clear()
        for cache in self._caches():
            cache.forget_announced()

    def _look_at(self, count: int, stride: int, sequences_of: SequencesOf) -> None:
        """Announce the shards of `count` steps after the announced ones, if there are as many."""
        while len(self._looked_at) < count:
            whole = self._ahead.batch(self._last + stride)
            if whole is None:
                return
            self._last += stride
            rows = [
                (reader, sequences_of(whole, number), whole.row_length)
                for number, reader in self._sources
                if reader.cache is not None
            ]
            for reader, sequences, row_length in rows:
                reader.announce_shards(sequences, row_length)
            self._looked_at.append(rows)

    def _check_room(self, num_steps: int) -> None:
        """Raise a UserError if a cache with a limit cannot hold the blocks of the next steps."""
        if any(cache.is_limited for cache in self._caches()):
            coming = [_blocks_of(rows) for rows in islice(self._looked_at, num_steps)]
            for steps_of_cache in zip(*coming, strict=True):
                cache = steps_of_cache[0][0]
                cache.check_room([blocks for _, blocks in steps_of_cache])

    def _announce(self, step: Sequence[_Blocks]) -> bool:
        """Announce a step to all caches, or to none and return False if it does not fit in one."""
        for number, (cache, blocks) in enumerate(step):
            if not cache.announce(blocks):
                for other, _ in step[:number]:
                    other.take_back()
                return False
        return True

    def _caches(self) -> list[BlockCache]:
        return [each.cache for each in self._sources.present if each.cache is not None]


def _blocks_of(rows: Sequence[_Rows]) -> list[_Blocks]:
    """Return the blocks of a step for each cache."""
    return [
        (reader.cache, reader.blocks_of(sequences, row_length))
        for reader, sequences, row_length in rows
        if reader.cache is not None
    ]
