"""Pairs of neighbouring tokens: how often each occurs, and where.

A pair's positions lie one after another in one array, in the order of the corpus, and are written
once. Positions become stale when a neighbour is merged away; that is seen when they are read.

Only pairs that occur at least `threshold` times are kept. Counts only fall, so no other pair can be
the most frequent one while one of these is left; then all pairs are counted anew, with a lower
threshold. That keeps tables small: most pairs of a corpus occur once or twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tokenmill.compiled import compiled, inlined
from tokenmill.encode.subword.pair_table import NOTHING, PairTable, slot_of
from tokenmill.records import Int32Array, Int64Array, UInt32Array
from tokenmill.vocabulary.bpe.slots import Integer, Slots

ID_BITS = 32
ID_MASK = (1 << ID_BITS) - 1
MORE_PAIRS = 1 << 16
MAX_NARROW_SLOTS = 1 << 32
MIXER = 0x9E3779B97F4A7C15
KEY, COUNT, PLACES = 0, 1, 2


class Pairs(NamedTuple):
    """Pairs, in the order in which they were added; how many there are is kept by the caller."""

    table: PairTable
    """The index of each pair in the arrays below."""
    keys: Int64Array
    """`left << 32 | right`."""
    counts: Int64Array
    """Occurrences in the corpus, with the counts of words."""
    starts: Int64Array
    """Where the positions of a pair begin in `positions`."""
    lengths: Int64Array
    """How many positions there are, stale ones included."""
    positions: UInt32Array | Int64Array
    """Slots of left tokens; int64 where there are more than 2^32 slots."""


@inlined
def find(pairs: Pairs, left: Integer, right: Integer) -> np.int64:
    """The index of a pair, or -1."""
    return np.int64(pairs.table.values[slot_of(pairs.table, left, right)])


@inlined
def add(
    pairs: Pairs, index: Integer, left: Integer, right: Integer, count: Integer, start: Integer
) -> None:
    """Add a pair that is not there yet, with room for positions from `start` on."""
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
    """Note that a pair begins at a slot."""
    pairs.positions[pairs.starts[index] + pairs.lengths[index]] = slot
    pairs.lengths[index] += 1


@inlined
def allowed(lengths: Int32Array, left: Integer, right: Integer, max_length: int) -> bool:
    """Whether a pair may be merged: two symbols always, others if the token is shorter than that.

    Lengths are those of the `tokenizers` library: in characters, or bytes of byte-level words.
    """
    together = np.int64(lengths[left]) + np.int64(lengths[right])
    return bool(together < max_length or together == 2)


def count_pairs(
    slots: Slots, lengths: Int32Array, max_length: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """All pairs of tokens that may be merged, of words whose tokens take one slot each.

    Returns their keys, counts, and numbers of places; shape (num_pairs,) each.
    """
    entries = _count_pairs(slots, lengths, max_length)
    return _columns(entries[entries[:, PLACES] > 0])


def _columns(entries: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    keys, counts, places = (np.ascontiguousarray(column) for column in entries.T)
    return keys, counts, places


@compiled
def _count_pairs(slots: Slots, lengths: Int32Array, max_length: int) -> Int64Array:
    """Count pairs in a hash table, shape (num_entries, 3): key, occurrences and places of a pair.

    An entry without a place is free.
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
    """The entry of a pair, or the free one where it belongs."""
    mask = np.int64(len(entries) - 1)
    entry = np.int64((np.uint64(key) * np.uint64(MIXER)) >> np.uint64(ID_BITS)) & mask
    while entries[entry, KEY] != key and entries[entry, PLACES] != 0:
        entry = (entry + np.int64(1)) & mask
    return entry


@compiled
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
    """A table of pairs with their indices; `num_slots` is a power of two."""
    table = PairTable(np.full(num_slots, NOTHING, np.int64), np.full(num_slots, NOTHING, np.int32))
    for i in range(len(keys)):
        slot = slot_of(table, keys[i] >> ID_BITS, keys[i] & ID_MASK)
        table.keys[slot] = keys[i]
        table.values[slot] = i
    return table


@compiled
def note_all(slots: Slots, pairs: Pairs) -> None:
    """Note where the pairs begin, in words whose tokens take one slot each."""
    for word in range(len(slots.counts)):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            index = find(pairs, slots.ids[i], slots.ids[i + 1])
            if index >= 0:
                note(pairs, index, i)


def frequent_pairs(
    slots: Slots, lengths: Int32Array, max_length: int, thresholds: Callable[[int], int]
) -> tuple[Pairs, Int64Array, int]:
    """Index the pairs that occur at least as often as `thresholds` says for the most frequent one.

    Returns them sorted (count, then key), with room for more of them; the number of places of each;
    and the threshold.
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
