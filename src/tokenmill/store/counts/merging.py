"""A k-way merge of any number of sorted runs of words, in compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array, UInt8Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.kernels.compiled import compiled, inner, mapped_array
from tokenmill.store.manifest import MAX_COUNT, Count

UInt64Array = np.ndarray[tuple[int], np.dtype[np.uint64]]

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


class _Runs(NamedTuple):
    """The runs of a merge, as arrays for compiled code."""

    table: Int64Array
    """Shape (num_runs, 5): addresses of words, offsets and counts; number of words; weight."""
    next_word: Int64Array
    """Shape (num_runs,): the index of the next word of each run."""
    keys: UInt64Array
    """Shape (num_runs,): the first 8 bytes of that word, as a big-endian number."""
    heap: Int64Array
    """Shape (num_runs,): a heap of runs; the first one has the smallest word."""


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
        self._runs = _Runs(
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
        size = _begin(self._runs)
        while size:
            size, words = _merge(
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


@inner
def _place(runs: _Runs, run: int) -> tuple[int, int]:
    """Return the address and the length of the next word of a run."""
    like = runs.next_word
    offsets = mapped_array(runs.table[run, 1], runs.table[run, 3] + 1, like)
    start = offsets[runs.next_word[run]]
    return runs.table[run, 0] + start, offsets[runs.next_word[run] + 1] - start


@inner
def _load_key(runs: _Runs, run: int, like: UInt8Array) -> None:
    address, length = _place(runs, run)
    word = mapped_array(address, length, like)
    key = np.uint64(0)
    for i in range(8):
        key = key << np.uint64(8)
        if i < length:
            key |= np.uint64(word[i])
    runs.keys[run] = key


@inner
def _compare(runs: _Runs, left: int, right: int, like: UInt8Array) -> int:
    """Return a negative number if the left run's word comes first, 0 if both are equal."""
    if runs.keys[left] != runs.keys[right]:
        return -1 if runs.keys[left] < runs.keys[right] else 1
    first, first_length = _place(runs, left)
    second, second_length = _place(runs, right)
    ours = mapped_array(first, first_length, like)
    theirs = mapped_array(second, second_length, like)
    for i in range(min(first_length, second_length)):
        if ours[i] != theirs[i]:
            return -1 if ours[i] < theirs[i] else 1
    return int(first_length - second_length)


@inner
def _sift(runs: _Runs, place: int, size: int, like: UInt8Array) -> None:
    """Move a run down the heap to its place."""
    run = runs.heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and _compare(runs, runs.heap[right], runs.heap[child], like) < 0:
            child = right
        if _compare(runs, run, runs.heap[child], like) <= 0:
            break
        runs.heap[place] = runs.heap[child]
        place = child
    runs.heap[place] = run


@compiled
def _begin(runs: _Runs) -> int:
    """Build the heap and return the number of runs in it."""
    like = np.empty(0, np.uint8)
    size = len(runs.heap)
    for run in range(size):
        _load_key(runs, run, like)
    for place in range(size // 2 - 1, -1, -1):
        _sift(runs, place, size, like)
    return size


@compiled
def _merge(
    runs: _Runs,
    size: int,
    data: UInt8Array,
    offsets: Int64Array,
    counts: Int64Array,
    min_count: int,
    left_out: Int64Array,
) -> tuple[int, int]:
    """Fill the arrays with words; return the number of runs left and of words."""
    words, num_bytes = 0, 0
    while size and words < len(counts):
        first = runs.heap[0]
        address, length = _place(runs, first)
        if num_bytes + length > len(data):
            break
        word = mapped_array(address, length, data)
        for i in range(length):  # to assign an array to a slice takes 2 s to compile
            data[num_bytes + i] = word[i]
        total, same = np.int64(0), True
        while same:
            run = runs.heap[0]
            of_run = mapped_array(runs.table[run, 2], runs.table[run, 3], counts)
            total += of_run[runs.next_word[run]] * runs.table[run, 4]
            runs.next_word[run] += 1
            if runs.next_word[run] == runs.table[run, 3]:
                size -= 1
                runs.heap[0] = runs.heap[size]
            else:
                _load_key(runs, run, data)
            if size:
                _sift(runs, 0, size, data)
            same = size > 0 and _is(runs, runs.heap[0], data, num_bytes, length)
        if total < min_count:
            left_out[0] += 1
            left_out[1] += total
            left_out[2] += total * length
        else:
            num_bytes += length
            counts[words] = total
            words += 1
            offsets[words] = num_bytes
    return size, words


@inner
def _is(runs: _Runs, run: int, data: UInt8Array, start: int, length: int) -> bool:
    """Return whether the next word of a run equals the last copied word."""
    address, found = _place(runs, run)
    if found != length:
        return False
    word = mapped_array(address, found, data)
    same = 0
    while same < length and word[same] == data[start + same]:
        same += 1
    return same == length
