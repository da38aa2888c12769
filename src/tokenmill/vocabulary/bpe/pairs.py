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
MORE_PAIRS = 1 << 12


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


@compiled
def count_pairs(
    slots: Slots, lengths: Int32Array, max_length: int
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """All pairs of tokens that may be merged, of words whose tokens take one slot each.

    Returns their keys, counts, and numbers of places; shape (num_pairs,) each.
    """
    table = PairTable(np.full(1 << 12, NOTHING, np.int64), np.full(1 << 12, NOTHING, np.int32))
    capacity = 1 << 11
    keys, totals = np.empty(capacity, np.int64), np.zeros(capacity, np.int64)
    places = np.zeros(capacity, np.int64)
    size = 0
    for word in range(len(slots.counts)):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            left, right = slots.ids[i], slots.ids[i + 1]
            slot = slot_of(table, left, right)
            index = np.int64(table.values[slot])
            if index == NOTHING:
                if not allowed(lengths, left, right, max_length):
                    continue
                if size == capacity:
                    capacity *= 2
                    keys, totals = _longer(keys), _longer(totals)
                    places = _longer(places)
                    table = indexed(keys[:size], 2 * capacity)
                    slot = slot_of(table, left, right)
                index = np.int64(size)
                size += 1
                table.keys[slot] = (np.int64(left) << ID_BITS) | np.int64(right)
                table.values[slot] = index
                keys[index] = table.keys[slot]
                totals[index] = 0
                places[index] = 0
            totals[index] += slots.counts[word]
            places[index] += 1
    return keys[:size], totals[:size], places[:size]


@compiled
def _longer(array: Int64Array) -> Int64Array:
    longer = np.empty(2 * len(array), np.int64)
    longer[: len(array)] = array
    return longer


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
def fill(
    slots: Slots, pairs: Pairs, keys: Int64Array, counts: Int64Array, places: Int64Array
) -> None:
    """Add pairs, and note where they begin, in words whose tokens take one slot each."""
    start = 0
    for i in range(len(keys)):
        add(pairs, i, keys[i] >> ID_BITS, keys[i] & ID_MASK, counts[i], start)
        start += places[i]
    for word in range(len(slots.counts)):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            index = find(pairs, slots.ids[i], slots.ids[i + 1])
            if index >= 0:
                note(pairs, index, i)


def frequent_pairs(
    slots: Slots, lengths: Int32Array, max_length: int, thresholds: Callable[[int], int]
) -> tuple[Pairs, Int64Array, int]:
    """Index the pairs that occur at least as often as `thresholds` says for the most frequent one.

    Returns them sorted (count, then key), with room for as many again, the number of places of
    each, and the threshold.
    """
    keys, counts, places = count_pairs(slots, lengths, max_length)
    threshold = thresholds(int(counts.max(initial=0)))
    chosen = np.flatnonzero(counts >= threshold)
    chosen = chosen[np.lexsort((keys[chosen], -counts[chosen]))]
    keys, counts, places = keys[chosen], counts[chosen], places[chosen]
    capacity = 2 * len(keys) + MORE_PAIRS
    num_positions = int(places.sum())
    num_slots = 1 << (2 * capacity - 1).bit_length()
    room = num_positions + num_positions // 2
    wide = len(slots.ids) > np.iinfo(np.uint32).max
    pairs = Pairs(
        PairTable(np.full(num_slots, NOTHING, np.int64), np.full(num_slots, NOTHING, np.int32)),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(room, np.int64) if wide else np.empty(room, np.uint32),
    )
    fill(slots, pairs, keys, counts, places)
    return pairs, places, threshold
