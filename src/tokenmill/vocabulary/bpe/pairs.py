"""Pairs of adjacent tokens: how often each occurs, and where.

The positions of a pair are contiguous in one array, in the order of the corpus, and written once.
A position becomes stale if one of its tokens is merged; readers detect that.

Only pairs with at least `threshold` occurrences are kept. Counts only fall, so no other pair can be
the most frequent one while any of these is left. Then all pairs are counted again, with a lower
threshold. This keeps tables small: most pairs of a corpus occur once or twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array, UInt32Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.pair_table import NOTHING, PairTable, slot_of
from tokenmill.vocabulary.bpe.slots import Integer, Slots

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


def count_pairs(
    slots: Slots, lengths: Int32Array, max_length: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Count all pairs that may be merged, in words where each token takes one slot.

    Returns:
        The keys, counts and numbers of positions of the pairs; shape (num_pairs,) each.
    """
    entries = _count_pairs(slots, lengths, max_length)
    return _columns(entries[entries[:, PLACES] > 0])


def _columns(entries: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    keys, counts, places = (np.ascontiguousarray(column) for column in entries.T)
    return keys, counts, places


@compiled
def _count_pairs(slots: Slots, lengths: Int32Array, max_length: int) -> Int64Array:
    """Count pairs in a hash table, shape (num_entries, 3): key, occurrences, number of positions.

    A free entry has no positions.
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
def indexed(keys: Int64Array, num_slots: int) -> PairTable:
    """Build a table from pairs to their indexes; `num_slots` is a power of two."""
    table = PairTable(np.full(num_slots, NOTHING, np.int64), np.full(num_slots, NOTHING, np.int32))
    for i in range(len(keys)):
        slot = slot_of(table, keys[i] >> ID_BITS, keys[i] & ID_MASK)
        table.keys[slot] = keys[i]
        table.values[slot] = i
    return table


@compiled
def note_all(slots: Slots, pairs: Pairs) -> None:
    """Record the positions of the pairs, in words where each token takes one slot."""
    for word in range(len(slots.counts)):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            index = find(pairs, slots.ids[i], slots.ids[i + 1])
            if index >= 0:
                note(pairs, index, i)


def frequent_pairs(
    slots: Slots, lengths: Int32Array, max_length: int, thresholds: Callable[[int], int]
) -> tuple[Pairs, Int64Array, int]:
    """Index the most frequent pairs; `thresholds` maps the highest count to the lowest to keep.

    Returns:
        The pairs, sorted by falling count, then key, with room for more; the number of positions
        of each; and the threshold.
    """
    entries = _count_pairs(slots, lengths, max_length)
    threshold = thresholds(int(entries[:, COUNT].max()))
    chosen = entries[entries[:, COUNT] >= threshold]
    del entries
    keys, counts, places = _columns(chosen[np.lexsort((chosen[:, KEY], -chosen[:, COUNT]))])
    num_positions = int(places.sum())
    room = 2 * num_positions + MORE_PAIRS
    more = len(keys) * 3 + MORE_PAIRS
    wide = len(slots.ids) > MAX_NARROW_SLOTS
    pairs = Pairs(
        indexed(keys, 1 << (2 * (len(keys) + more) - 1).bit_length()),
        _longer(keys, more),
        _longer(counts, more),
        _longer(np.cumsum(places) - places, more),
        np.zeros(len(keys) + more, np.int64),
        np.empty(room, np.int64) if wide else np.empty(room, np.uint32),
    )
    note_all(slots, pairs)
    return pairs, places, threshold


def _longer(array: Int64Array, more: int) -> Int64Array:
    return np.concatenate([array, np.empty(more, np.int64)])
