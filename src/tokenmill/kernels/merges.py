"""BPE in compiled code: the merges of a model, applied to words of symbols.

With BPE-dropout, each possible merge is skipped with a probability at each step (see
`encode/subword/sampler.py`). Of equal merges the leftmost comes first, as in the `tokenizers`
library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.pair_table import (
    NO_PAIRS,
    PairAddresses,
    PairTable,
    addresses_of,
    pair_table,
    slot_of,
    value_at,
)
from tokenmill.kernels.permutation import draw

MAX_SCANNED_SYMBOLS = 24
"""Longer words use a heap to find the next merge, so that no word takes quadratic time."""


_NEVER = np.uint64(0)


class MergeTable(NamedTuple):
    """The merges of a model by rank."""

    table: PairTable
    """The rank of each pair of ids."""
    results: Int32Array
    """Shape (num_ranks,): the id that the merge of each rank produces; -1 if several share it."""
    tied: PairTable = NO_PAIRS
    """The id that a pair produces whose merge shares its rank with others."""


def merge_table(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, ...]], prefix: str = ""
) -> MergeTable:
    """Build the table of merges; `prefix`, which marks continuations, is cut from right sides."""
    parts = [np.array([vocab[m[side]] for m in merges], np.int32) for side in (0, 1)]
    table = pair_table(parts[0], parts[1], np.arange(len(merges), dtype=np.int32))
    results = [vocab[left + right[len(prefix) :]] for left, right in merges]
    return MergeTable(table, np.array(results, np.int32))


@compiled
def cut_words(symbols: Int32Array, offsets: Int64Array, crossable: PairTable) -> Int64Array:
    """Cut words further, between symbols that no merge can join; return the new offsets."""
    cuts = np.empty(len(symbols) + 1, np.int64)
    cuts[0] = 0
    count, word = 1, 1
    for i in range(1, len(symbols)):
        begins = offsets[word] == i
        if begins:
            word += 1
        if begins or crossable.keys[slot_of(crossable, symbols[i - 1], symbols[i])] < 0:
            cuts[count] = i
            count += 1
    if len(symbols):
        cuts[count] = len(symbols)
        count += 1
    return cuts[:count].copy()


class _Word(NamedTuple):
    """A word during merging: a linked list of ids, and a heap of possible merges.

    An entry of the heap is `rank << 32 | position`; the smallest is the next merge.
    """

    ids: Int32Array
    following: Int64Array
    preceding: Int64Array
    ranks: Int64Array
    """The rank of the merge of each id with the next one, or -1."""
    heap: Int64Array
    left_out: Int64Array
    """The entries dropped in the current step."""


def merge_words(
    symbols: Int32Array,
    offsets: Int64Array,
    merges: MergeTable,
    dropout: np.uint64 = _NEVER,
    key: np.uint64 = _NEVER,
) -> tuple[Int32Array, Int64Array]:
    """Return the ids of all words, concatenated, and their offsets, shape (num_words + 1,)."""
    longest = int(np.diff(offsets).max(initial=0))
    room = 3 * longest  # a merge makes at most two new pairs
    links = (np.empty(longest, np.int64) for _ in range(3))
    entries = (np.empty(room, np.int64) for _ in range(2))
    word = _Word(np.empty(longest, np.int32), *links, *entries)
    result, edges = np.empty(len(symbols), np.int32), np.zeros(len(offsets), np.int64)
    _merge(symbols, offsets, merges, (dropout, key), word, result, edges)
    return result[: edges[-1]], edges


@compiled
def _merge(
    symbols: Int32Array,
    offsets: Int64Array,
    merges: MergeTable,
    chance: tuple[np.uint64, np.uint64],
    word: _Word,
    result: Int32Array,
    edges: Int64Array,
) -> None:
    """Write the ids of every word, and their edges."""
    dropout, key = chance
    ids, ranks, results = word.ids, word.ranks, merges.results
    pairs, tied = addresses_of(merges.table), addresses_of(merges.tied)
    num_ids, draws = 0, np.uint64(0)
    for i in range(len(offsets) - 1):
        first, length = offsets[i], offsets[i + 1] - offsets[i]
        if length <= MAX_SCANNED_SYMBOLS and not dropout:
            for place in range(length):
                result[num_ids + place] = symbols[first + place]
            num_ids += _merge_by_scanning(result, num_ids, length, ranks, (pairs, tied), results)
        else:
            chances = (dropout, key, draws)
            draws = _merge_by_heap(word, symbols, first, length, merges, chances)
            place = 0
            while place < length:
                result[num_ids] = ids[place]
                num_ids += 1
                place = word.following[place]
        edges[i + 1] = num_ids


@inlined
def _merge_by_scanning(
    ids: Int32Array,
    first: int,
    length: int,
    ranks: Int64Array,
    tables: tuple[PairAddresses, PairAddresses],
    results: Int32Array,
) -> int:
    """Merge a short word in place, from `first` on; return the number of its ids."""
    pairs, tied = tables
    never = np.int64(1) << np.int64(62)
    low, high = first, first + length - 1  # the positions whose ranks must be looked up
    last = high
    while last > first:
        for i in range(low, high):
            rank = value_at(pairs, np.int64(ids[i]), np.int64(ids[i + 1]))
            ranks[i - first] = rank if rank >= 0 else never
        best, place = never, first
        for i in range(first, last):
            if ranks[i - first] < best:
                best, place = ranks[i - first], i
        if best == never:
            break
        made = results[best]
        if made < 0:
            made = np.int32(value_at(tied, np.int64(ids[place]), np.int64(ids[place + 1])))
        ids[place] = made
        for i in range(place + 1, last):
            ids[i] = ids[i + 1]
            ranks[i - 1 - first] = ranks[i - first]
        last -= 1
        low, high = max(place - 1, first), min(place + 1, last)
    return last + 1 - first


@inner
def _merge_by_heap(  # noqa: C901
    word: _Word,
    symbols: Int32Array,
    first: int,
    length: int,
    merges: MergeTable,
    chance: tuple[np.uint64, np.uint64, np.uint64],
) -> np.uint64:
    """Merge a word until all merges are dropped; return how many numbers were drawn so far."""
    dropout, key, draws = chance
    ids, following, preceding, ranks, heap, left_out = word
    pairs, tied, results = addresses_of(merges.table), addresses_of(merges.tied), merges.results
    for i in range(length):
        ids[i], following[i], preceding[i] = symbols[first + i], i + 1, i - 1
    ranks[length - 1] = -1
    num_left_out = 0
    size: int | np.int64 = np.int64(0)  # a literal would have another type than the later values
    for i in range(length - 1):
        rank = value_at(pairs, np.int64(ids[i]), np.int64(ids[i + 1]))
        ranks[i] = rank
        if rank >= 0:
            size = _push(heap, size, rank << 32 | i)
    while size:
        entry = heap[0]
        size = _pop(heap, size)
        place, rank = entry & 0xFFFFFFFF, entry >> 32
        if ranks[place] != rank:
            continue  # one of the two has already been merged
        if dropout:
            draws += np.uint64(1)
            if draw(key, draws) < dropout:
                left_out[num_left_out] = entry
                num_left_out += 1
                continue
        for i in range(num_left_out):
            size = _push(heap, size, left_out[i])
        num_left_out = 0
        right = following[place]
        after, before = following[right], preceding[place]
        made = results[rank]
        if made < 0:
            made = np.int32(value_at(tied, np.int64(ids[place]), np.int64(ids[right])))
        ids[place], following[place] = made, after
        ranks[right] = ranks[place] = -1
        if after < length:
            preceding[after] = place
        for left in (place, before):
            other = following[left] if left >= 0 else length
            if other < length:
                rank = value_at(pairs, np.int64(ids[left]), np.int64(ids[other]))
                ranks[left] = rank
                if rank >= 0:
                    size = _push(heap, size, rank << 32 | left)
    return draws


@inner
def _push(heap: Int64Array, size: int | np.int64, entry: int) -> int | np.int64:
    """Add an entry to a binary heap, smallest first; return the new size."""
    child = size
    while child:
        parent = (child - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = entry
    return size + 1


@inner
def _pop(heap: Int64Array, size: int | np.int64) -> int | np.int64:
    """Remove the smallest entry; return the new size."""
    size -= 1
    entry = heap[size]
    place = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if entry <= heap[child]:
            break
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    heap[place] = entry
    return size
