"""Pairs of adjacent tokens: how often each occurs, and where.

The positions of a pair are contiguous in one array, in the order of the corpus, and written once.
A position becomes stale if one of its tokens is merged; readers detect that.

Each text has a heap of its pairs. Its entries are updated lazily: an entry holds the count of its
pair when it was last read. Counts only fall, so an entry is never too low, and one that is too high
is corrected when it reaches the top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array, UInt32Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.pair_table import NOTHING, PairTable, slot_of
from tokenmill.kernels.word_slots import Integer, Slots

ID_BITS = 32
ID_MASK = (1 << ID_BITS) - 1
MORE_PAIRS = 1 << 16
MAX_NARROW_SLOTS = 1 << 32
MIXER = 0x9E3779B97F4A7C15
KEY, COUNT, PLACES = 0, 1, 2


class Pairs(NamedTuple):
    """Pairs in the order they were added; the caller keeps their number."""

    table: PairTable
    """The index of each pair in the arrays below."""
    keys: Int64Array
    """`left << 32 | right`."""
    counts: Int64Array
    """Occurrences in the corpus."""
    starts: Int64Array
    """Where the positions of each pair begin in `positions`."""
    lengths: Int64Array
    """The number of positions of each pair, including stale ones."""
    positions: UInt32Array | Int64Array
    """Slots of left tokens; int64 for more than 2^32 slots."""


class Heaps(NamedTuple):
    """Binary heaps of pairs: largest count first, then the left token that is first in `order`,
    then the right one.
    """

    counts: Int64Array
    pairs: Int32Array
    starts: Int64Array
    """Shape (num_heaps + 1,): where the entries of each heap begin."""
    sizes: Int64Array
    """Shape (num_heaps,): the number of entries of each heap."""
    order: Int64Array
    """Shape (num_ids,): lower numbers come first."""


@inlined
def find(pairs: Pairs, left: Integer, right: Integer) -> np.int64:
    """Return the index of a pair, or -1."""
    return np.int64(pairs.table.values[slot_of(pairs.table, left, right)])


@inlined
def add(
    pairs: Pairs, index: Integer, left: Integer, right: Integer, count: Integer, start: Integer
) -> None:
    """Add a new pair; its positions go to `start` and after."""
    slot = slot_of(pairs.table, left, right)
    key = (np.int64(left) << ID_BITS) | np.int64(right)
    pairs.table.keys[slot] = key
    pairs.table.values[slot] = index
    pairs.keys[index] = key
    pairs.counts[index] = count
    pairs.starts[index] = start
    pairs.lengths[index] = 0


@inlined
def note(pairs: Pairs, index: Integer, slot: Integer) -> None:
    """Record that a pair begins at a slot."""
    pairs.positions[pairs.starts[index] + pairs.lengths[index]] = slot
    pairs.lengths[index] += 1


@inlined
def allowed(lengths: Int32Array, left: Integer, right: Integer, max_length: int) -> bool:
    """Whether a pair may be merged: two symbols always, others if the result is short enough.

    As in the `tokenizers` library, lengths are in characters, or in bytes for byte level.
    """
    together = np.int64(lengths[left]) + np.int64(lengths[right])
    return bool(together < max_length or together == 2)


@inner
def _precedes(heaps: Heaps, keys: Int64Array, count: Integer, pair: Integer, place: int) -> bool:
    """Whether a pair comes before the entry at a place."""
    if count != heaps.counts[place]:
        return bool(count > heaps.counts[place])
    key, other = keys[pair], keys[heaps.pairs[place]]
    if key >> ID_BITS != other >> ID_BITS:
        return bool(heaps.order[key >> ID_BITS] < heaps.order[other >> ID_BITS])
    return bool(heaps.order[key & ID_MASK] < heaps.order[other & ID_MASK])


@inlined
def push(heaps: Heaps, keys: Int64Array, heap: Integer, count: Integer, pair: Integer) -> None:
    """Add an entry to a heap."""
    start, child = heaps.starts[heap], heaps.sizes[heap]
    heaps.sizes[heap] += 1
    while child > 0:
        parent = (child - 1) >> 1
        if not _precedes(heaps, keys, count, pair, start + parent):
            break
        heaps.counts[start + child] = heaps.counts[start + parent]
        heaps.pairs[start + child] = heaps.pairs[start + parent]
        child = parent
    heaps.counts[start + child] = count
    heaps.pairs[start + child] = pair


@inner
def _replace_first(
    heaps: Heaps, keys: Int64Array, heap: int, count: Integer, pair: Integer
) -> None:
    """Replace the first entry of a heap."""
    start, size = heaps.starts[heap], heaps.sizes[heap]
    place, child = np.int64(0), np.int64(1)
    while child < size:
        other = start + child + 1
        if child + 1 < size and _precedes(
            heaps, keys, heaps.counts[other], np.int64(heaps.pairs[other]), start + child
        ):
            child += 1
        if _precedes(heaps, keys, count, pair, start + child):
            break
        heaps.counts[start + place] = heaps.counts[start + child]
        heaps.pairs[start + place] = heaps.pairs[start + child]
        place = child
        child = 2 * place + 1
    heaps.counts[start + place] = count
    heaps.pairs[start + place] = pair


@compiled
def most_frequent(
    heaps: Heaps, keys: Int64Array, counts: Int64Array, heap: int, threshold: int
) -> int:
    """Return the key of the first pair of a heap; -1 if none occurs `threshold` times."""
    start = heaps.starts[heap]
    while heaps.sizes[heap] > 0:
        pair = np.int64(heaps.pairs[start])
        if counts[pair] == heaps.counts[start]:
            return int(keys[pair]) if counts[pair] >= threshold else NOTHING
        count = counts[pair]
        if count < threshold:  # remove it: the last entry takes its place
            heaps.sizes[heap] -= 1
            last = start + heaps.sizes[heap]
            count, pair = heaps.counts[last], np.int64(heaps.pairs[last])
        _replace_first(heaps, keys, heap, count, pair)
    return NOTHING


@compiled
def count_pairs(slots: Slots, lengths: Int32Array, max_length: int) -> Int64Array:
    """Count pairs in a hash table, in words where each token takes one slot.

    Returns:
        Shape (num_entries, 3): key, occurrences, number of positions. A free entry has no
        positions.
    """
    entries = np.zeros((1 << 12, 3), np.int64)
    size = 0
    for word in range(len(slots.counts)):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            left, right = np.int64(slots.ids[i]), np.int64(slots.ids[i + 1])
            key = (left << ID_BITS) | right
            entry = _entry_of(entries, key)
            if entries[entry, PLACES] == 0:
                if not allowed(lengths, left, right, max_length):
                    continue
                if 3 * size >= 2 * len(entries):
                    entries = _rehashed(entries)
                    entry = _entry_of(entries, key)
                entries[entry, KEY] = key
                size += 1
            entries[entry, COUNT] += slots.counts[word]
            entries[entry, PLACES] += 1
    return entries


@inlined
def _entry_of(entries: Int64Array, key: Integer) -> np.int64:
    """Return the entry of a pair, or the free entry for it."""
    mask = np.int64(len(entries) - 1)
    entry = np.int64((np.uint64(key) * np.uint64(MIXER)) >> np.uint64(ID_BITS)) & mask
    while entries[entry, KEY] != key and entries[entry, PLACES] != 0:
        entry = (entry + np.int64(1)) & mask
    return entry


@inner
def _rehashed(entries: Int64Array) -> Int64Array:
    larger = np.zeros((2 * len(entries), 3), np.int64)
    for i in range(len(entries)):
        if entries[i, PLACES] != 0:
            entry = _entry_of(larger, entries[i, KEY])
            for column in range(3):  # a row at once takes seconds to compile
                larger[entry, column] = entries[i, column]
    return larger


@compiled
def _index(slots: Slots, pairs: Pairs, num_pairs: int) -> None:
    """Fill the table of the first pairs, and record their positions."""
    for i in range(num_pairs):
        slot = slot_of(pairs.table, pairs.keys[i] >> ID_BITS, pairs.keys[i] & ID_MASK)
        pairs.table.keys[slot] = pairs.keys[i]
        pairs.table.values[slot] = i
    for word in range(len(slots.counts)):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            index = find(pairs, slots.ids[i], slots.ids[i + 1])
            if index >= 0:
                note(pairs, index, i)


def index_pairs(
    slots: Slots, entries: Int64Array, order: Int64Array, heap_of: Int32Array, num_heaps: int
) -> tuple[Pairs, Heaps]:
    """Index counted pairs, with room for three times as many more.

    Args:
        slots: Words where each token takes one slot.
        entries: The pairs, as from `count_pairs`.
        order: See `Heaps`.
        heap_of: Shape (num_ids,): the heap of pairs with this left token, in rising order;
            `num_heaps` and above for none.
        num_heaps: The number of heaps.
    """
    lefts, rights = entries[:, KEY] >> ID_BITS, entries[:, KEY] & ID_MASK
    heap = heap_of[lefts]
    chosen = np.lexsort((order[rights], order[lefts], -entries[:, COUNT], heap))
    keys, counts, places = (np.ascontiguousarray(column) for column in entries[chosen].T)
    number, num_positions = len(keys), int(places.sum())
    in_heaps = np.bincount(heap, minlength=num_heaps)[:num_heaps]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(4 * in_heaps + MORE_PAIRS)])
    more = 3 * number + num_heaps * MORE_PAIRS
    heaps = Heaps(
        np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int32), starts, in_heaps, order
    )
    first = 0
    for start, size in zip(starts.tolist(), in_heaps.tolist(), strict=False):
        # Pairs sorted from the largest count are already a heap.
        heaps.counts[start : start + size] = counts[first : first + size]
        heaps.pairs[start : start + size] = np.arange(first, first + size)
        first += size
    num_slots = 1 << (2 * (number + more) - 1).bit_length()
    room = 2 * num_positions + MORE_PAIRS
    wide = len(slots.ids) > MAX_NARROW_SLOTS
    pairs = Pairs(
        PairTable(np.full(num_slots, NOTHING, np.int64), np.full(num_slots, NOTHING, np.int32)),
        _longer(keys, more),
        _longer(counts, more),
        _longer(np.cumsum(places) - places, more),
        np.zeros(number + more, np.int64),
        np.empty(room, np.int64) if wide else np.empty(room, np.uint32),
    )
    _index(slots, pairs, number)
    return pairs, heaps


def _longer(array: Int64Array, more: int) -> Int64Array:
    return np.concatenate([array, np.empty(more, np.int64)])
