"""A k-way merge of sorted runs of words, in compiled code.

The runs are mapped files, so they are passed as a table of addresses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.memory import mapped_array


class Runs(NamedTuple):
    """The runs of a merge, as arrays for compiled code."""

    table: Int64Array
    """Shape (num_runs, 5): addresses of words, offsets and counts; number of words; weight."""
    next_word: Int64Array
    """Shape (num_runs,): the index of the next word of each run."""
    keys: UInt64Array
    """Shape (num_runs,): the first 8 bytes of that word, as a big-endian number."""
    heap: Int64Array
    """Shape (num_runs,): a heap of runs; the first one has the smallest word."""


@inner
def _place(runs: Runs, run: int) -> tuple[int, int]:
    """Return the address and the length of the next word of a run."""
    like = runs.next_word
    offsets = mapped_array(runs.table[run, 1], runs.table[run, 3] + 1, like)
    start = offsets[runs.next_word[run]]
    return runs.table[run, 0] + start, offsets[runs.next_word[run] + 1] - start


@inner
def _load_key(runs: Runs, run: int, like: UInt8Array) -> None:
    address, length = _place(runs, run)
    word = mapped_array(address, length, like)
    key = np.uint64(0)
    for i in range(8):
        key = key << np.uint64(8)
        if i < length:
            key |= np.uint64(word[i])
    runs.keys[run] = key


@inner
def _compare(runs: Runs, left: int, right: int, like: UInt8Array) -> int:
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
def _sift(runs: Runs, place: int, size: int, like: UInt8Array) -> None:
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
def begin(runs: Runs) -> int:
    """Build the heap and return the number of runs in it."""
    like = np.empty(0, np.uint8)
    size = len(runs.heap)
    for run in range(size):
        _load_key(runs, run, like)
    for place in range(size // 2 - 1, -1, -1):
        _sift(runs, place, size, like)
    return size


@compiled
def merge_runs(
    runs: Runs,
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
def _is(runs: Runs, run: int, data: UInt8Array, start: int, length: int) -> bool:
    """Return whether the next word of a run equals the last copied word."""
    address, found = _place(runs, run)
    if found != length:
        return False
    word = mapped_array(address, found, data)
    same = 0
    while same < length and word[same] == data[start + same]:
        same += 1
    return same == length
