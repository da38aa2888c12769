"""A k-way merge of any number of sorted runs of words, in compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.kernels.word_runs import Runs, begin, merge_runs
from tokenmill.store.manifest import MAX_COUNT, Count

PART_BYTES = 8 << 20
"""Bytes of words in each part of a merge."""
PART_WORDS = 1 << 20


class LeftOut(msgspec.Struct, frozen=True):
    """Words that were omitted because they are rare."""

    words: Count = 0
    occurrences: Count = 0
    bytes: Count = 0
    """Bytes of all their occurrences."""

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(
            self.words + other.words,
            self.occurrences + other.occurrences,
            self.bytes + other.bytes,
        )


class Merge:
    """Merges runs part by part, in bounded memory."""

    def __init__(
        self, runs: Sequence[WordCounts], weights: Sequence[int] = (), min_count: int = 1
    ) -> None:
        """Multiply the counts of run i by `weights[i]`, which is above 0, and then omit words that
        occur less than `min_count` times.

        Raises:
            UserError: sums of the counts could overflow.
        """
        pairs = zip(runs, weights or [1] * len(runs), strict=True)
        kept = [(run, weight) for run, weight in pairs if len(run)]
        num_bytes = sum(run.num_bytes * weight for run, weight in kept)
        if num_bytes > MAX_COUNT:
            raise UserError(
                "the word counts are too large to add up",
                why=f"they represent {float(num_bytes):.3g} bytes of text; the limit is 2^53",
                hint="divide all weights by one common factor",
            )
        self._arrays = [  # keeps the arrays alive while their addresses are used
            (np.asarray(run.data), np.asarray(run.offsets), np.asarray(run.counts))
            for run, _ in kept
        ]
        rows = [
            [*(array.ctypes.data for array in arrays), len(run), weight]
            for arrays, (run, weight) in zip(self._arrays, kept, strict=True)
        ]
        count = len(kept)
        self._runs = Runs(
            np.array(rows, np.int64).reshape(count, 5),
            np.zeros(count, np.int64),
            np.zeros(count, np.uint64),
            np.arange(count, dtype=np.int64),
        )
        self._min_count = min_count
        self._longest = max((int(np.diff(run.offsets).max()) for run, _ in kept), default=0)
        self._left_out = np.zeros(3, np.int64)

    def parts(self) -> Iterator[WordCounts]:
        """Yield the merged words in order, in parts; each part reuses the arrays of the last."""
        data = np.empty(max(PART_BYTES, self._longest), np.uint8)
        offsets = np.zeros(PART_WORDS + 1, np.int64)
        counts = np.empty(PART_WORDS, np.int64)
        size = begin(self._runs)
        while size:
            size, words = merge_runs(
                self._runs, size, data, offsets, counts, self._min_count, self._left_out
            )
            yield WordCounts(data[: offsets[words]], offsets[: words + 1], counts[:words])

    @property
    def left_out(self) -> LeftOut:
        """The rare words that were omitted so far."""
        return LeftOut(*self._left_out.tolist())


def merged(runs: Sequence[WordCounts], weights: Sequence[int] = ()) -> WordCounts:
    """Merge runs in memory."""
    room_words = sum(map(len, runs))
    data = np.empty(sum(len(run.data) for run in runs), np.uint8)  # pages that nobody touches
    offsets, counts = np.zeros(room_words + 1, np.int64), np.empty(room_words, np.int64)  # are free
    words = 0
    for part in Merge(runs, weights).parts():
        start = int(offsets[words])
        data[start : start + len(part.data)] = part.data
        offsets[words + 1 : words + len(part) + 1] = part.offsets[1:] + start
        counts[words : words + len(part)] = part.counts
        words += len(part)
    return WordCounts(data[: offsets[words]], offsets[: words + 1], counts[:words])
