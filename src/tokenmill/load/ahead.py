"""Blocks of the next steps, brought from a bucket while the steps before them are trained on."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence

from tokenmill.load.rows.block_cache import BlockCache
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.steps.schedule import GlobalBatch, Schedule
from tokenmill.records import Int64Array

SequencesOf = Callable[[GlobalBatch, int], Int64Array]
"""The sequences of a global batch that are read here with the reader of a number."""

_Blocks = tuple[BlockCache, Int64Array]


class ReadAhead:
    """Announces steps to the caches of readers, in the order in which they will come.

    Nothing depends on it but time: what was not announced is brought when it is read. It keeps a
    schedule of its own, since one that knows its steps only one after another cannot be at two.
    """

    def __init__(self, readers: Sequence[RowReader], schedule: Schedule) -> None:
        self._readers, self._schedule = readers, schedule
        origins = [reader.dataset.origin for reader in readers]
        self._most = max((each.prefetch_steps for each in origins if each is not None), default=0)
        self._is_local = not any(origins)
        self._pid = os.getpid()
        self._next: tuple[int, int] | None = None
        """The step that comes next if steps go on in order, and how far apart they are."""
        self._num_announced = 0

    def __reduce__(self) -> tuple[type[ReadAhead], tuple[object, ...]]:
        return type(self), (self._readers, self._schedule)

    def before(self, step: int, stride: int, sequences_of: SequencesOf) -> None:
        """Announce the steps after this one, every `stride`-th, as it is about to be read.

        After a jump that is not the first step ever, only this one is announced.

        Raises:
            UserError: the cache is too small for the steps that are announced first.
        """
        if self._is_local:
            return
        if self._pid != os.getpid():  # the caches of a forked process begin anew
            self._next, self._pid = None, os.getpid()
        begins = self._next is None
        self._stand_at(step, stride)
        most = self._most if begins or self._next == (step, stride) else 0
        self._next = (step + stride, stride)
        coming = [
            self._blocks_of(whole, sequences_of)
            for whole in self._coming(most + 1 - self._num_announced, stride)
        ]
        if begins:
            for steps_of_cache in zip(*coming, strict=True):
                cache = steps_of_cache[0][0]
                cache.check_room([blocks for _, blocks in steps_of_cache])
        for blocks_of_step in coming:
            if not self._announce(blocks_of_step):
                break
            self._last += stride
            self._num_announced += 1
        if not self._num_announced:  # it does not fit: what is read will say so
            self._next = (step, -1)

    def _stand_at(self, step: int, stride: int) -> None:
        """Forget the steps before this one, or after a jump all that were announced."""
        if self._next == (step, stride):
            for cache in self._caches():
                cache.passed()
            self._num_announced -= 1
            return
        self._ahead = copy.copy(self._schedule)
        self._num_announced, self._last = 0, step - stride
        for cache in self._caches():
            cache.forget_announced()

    def _blocks_of(self, whole: GlobalBatch, sequences_of: SequencesOf) -> list[_Blocks]:
        """The blocks of a step, for each cache."""
        return [
            (reader.cache, reader.blocks_of(sequences_of(whole, number), whole.row_length))
            for number, reader in enumerate(self._readers)
            if reader.cache is not None
        ]

    def _coming(self, count: int, stride: int) -> Iterator[GlobalBatch]:
        """So many steps after those that were announced, as far as there are any."""
        for number in range(1, count + 1):
            whole = self._ahead.batch(self._last + number * stride)
            if whole is None:
                return
            yield whole

    def _announce(self, step: Sequence[_Blocks]) -> bool:
        """Whether the blocks of a step fit into all caches; if not, none has it announced."""
        for number, (cache, blocks) in enumerate(step):
            if not cache.announce(blocks):
                for other, _ in step[:number]:
                    other.take_back()
                return False
        return True

    def _caches(self) -> list[BlockCache]:
        return [reader.cache for reader in self._readers if reader.cache is not None]
