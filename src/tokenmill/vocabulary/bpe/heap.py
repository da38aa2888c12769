"""A binary heap of pairs: largest count first, then the smaller (left id, right id).

Entries are updated lazily: an entry holds the count of its pair when it was last read. Counts only
fall, so an entry is never too low, and one that is too high is corrected when it reaches the top.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import inlined
from tokenmill.vocabulary.bpe.slots import Integer


class Heap(NamedTuple):
    """The entries of a heap; the caller keeps their number."""

    counts: Int64Array
    pairs: Int32Array
    """Indexes of pairs; their keys break ties between equal counts."""


@inlined
def push(heap: Heap, size: Integer, count: Integer, pair: Integer, keys: Int64Array) -> Integer:
    """Add an entry; return the new size."""
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        above = heap.counts[parent]
        if above > count or (above == count and keys[heap.pairs[parent]] < keys[pair]):
            break
        heap.counts[child] = above
        heap.pairs[child] = heap.pairs[parent]
        child = parent
    heap.counts[child] = count
    heap.pairs[child] = pair
    return size + 1


@inlined
def replace_first(
    heap: Heap, size: Integer, count: Integer, pair: Integer, keys: Int64Array
) -> None:
    """Replace the first entry."""
    key = keys[pair]
    place = 0
    child = 1
    while child < size:
        other = child + 1
        if other < size:
            ahead = heap.counts[other] - heap.counts[child]
            if ahead > 0 or (ahead == 0 and keys[heap.pairs[other]] < keys[heap.pairs[child]]):
                child = other
        below = heap.counts[child]
        if count > below or (count == below and key < keys[heap.pairs[child]]):
            break
        heap.counts[place] = below
        heap.pairs[place] = heap.pairs[child]
        place = child
        child = 2 * place + 1
    heap.counts[place] = count
    heap.pairs[place] = pair


@inlined
def remove_first(heap: Heap, size: Integer, keys: Int64Array) -> Integer:
    """Remove the first entry; return the new size."""
    size -= 1
    if size > 0:
        replace_first(heap, size, heap.counts[size], heap.pairs[size], keys)
    return size
