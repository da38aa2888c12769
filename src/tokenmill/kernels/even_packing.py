"""Loops that fill sequences so that their costs are similar. A cost is a sum of squared sizes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.packing import clear, next_room, put

_HIGHEST = np.iinfo(np.int64).max


class Filling(NamedTuple):
    """The sequences while they are being filled."""

    sequence_of: Int32Array
    """Sequence of each placed piece, shape (pieces,)."""
    rooms: Int32Array
    """Free tokens in each sequence, shape (sequences,)."""
    costs: Int64Array
    """Cost of each sequence in tokens squared, shape (sequences,)."""
    segments_left: Int32Array
    """Number of segments that each sequence can still take, shape (sequences,)."""
    top: Int32Array
    """Top of the stack of sequences with each room, or -1, shape (length + 1,)."""
    below: Int32Array
    """Sequence below each sequence in its stack, or -1, shape (sequences,)."""


def new_filling(num_pieces: int, num_sequences: int, length: int, max_segments: int) -> Filling:
    """Return empty sequences, none of them in a stack."""
    return Filling(
        np.empty(num_pieces, np.int32),
        np.full(num_sequences, length, np.int32),
        np.zeros(num_sequences, np.int64),
        np.full(num_sequences, max_segments, np.int32),
        np.full(length + 1, -1, np.int32),
        np.full(num_sequences, -1, np.int32),
    )


@inlined
def _place(filling: Filling, piece: int, size: int, sequence: int) -> None:
    filling.sequence_of[piece] = sequence
    filling.rooms[sequence] -= size
    filling.costs[sequence] += np.int64(size) * np.int64(size)
    filling.segments_left[sequence] -= 1


@inlined
def _set_aside(filling: Filling, sequence: int) -> None:
    """Push a sequence on the stack of its room, unless it is full."""
    room = filling.rooms[sequence]
    if room > 0 and filling.segments_left[sequence] > 0:
        filling.below[sequence] = filling.top[room]
        filling.top[room] = sequence


@compiled
def place_evenly(sizes: Int32Array, order: Int32Array, num_pieces: int, filling: Filling) -> int:
    """Put the first `num_pieces` of `order`, longest first, into the sequences of lowest cost.

    Sequences must be empty at first. Stop at a piece that does not fit in any sequence, and return
    the number of placed pieces. Sequences that are not full are in the stacks afterwards.
    """
    placed = min(len(filling.rooms), num_pieces)
    for i in range(placed):
        _place(filling, order[i], sizes[order[i]], i)
    for sequence in range(len(filling.rooms)):
        _set_aside(filling, sequence)
    # A heap of the sequences with room for pieces of this size, by cost.
    costs = np.empty(len(filling.rooms) + 1, np.int64)
    heap = np.empty(len(filling.rooms), np.int32)
    count = 0
    lowest_room = len(filling.top)
    while placed < num_pieces:
        piece = order[placed]
        size = sizes[piece]
        # This piece is shorter, so it may fit where longer ones did not.
        while lowest_room > size:
            lowest_room -= 1
            while filling.top[lowest_room] >= 0:
                sequence = filling.top[lowest_room]
                filling.top[lowest_room] = filling.below[sequence]
                _push(costs, heap, count, filling.costs[sequence], sequence)
                count += 1
        if count == 0:
            break
        sequence = heap[0]
        _place(filling, piece, size, sequence)
        placed += 1
        if filling.rooms[sequence] >= size and filling.segments_left[sequence] > 0:
            _replace_first(costs, heap, count, filling.costs[sequence], sequence)
        else:
            count -= 1
            _replace_first(costs, heap, count, costs[count], heap[count])
            _set_aside(filling, sequence)
    for i in range(count):
        _set_aside(filling, heap[i])
    return placed


@inlined
def _push(costs: Int64Array, heap: Int32Array, count: int, cost: int, sequence: int) -> None:
    """Add to a heap of `count` sequences."""
    place = count
    while place > 0 and costs[(place - 1) >> 1] > cost:
        costs[place] = costs[(place - 1) >> 1]
        heap[place] = heap[(place - 1) >> 1]
        place = (place - 1) >> 1
    costs[place] = cost
    heap[place] = sequence


@inlined
def _replace_first(
    costs: Int64Array, heap: Int32Array, count: int, cost: int, sequence: int
) -> None:
    """Replace the sequence of lowest cost in a heap of `count`."""
    costs[count] = _HIGHEST
    place = 0
    child = 1
    while child < count:
        # Arithmetic avoids a branch that the processor would often predict wrongly.
        child += int(costs[child + 1] < costs[child])
        if costs[child] >= cost:
            break
        costs[place] = costs[child]
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    costs[place] = cost
    heap[place] = sequence


@compiled
def place_by_best_fit(
    sizes: Int32Array, order: Int32Array, begin: int, num_sequences: int, filling: Filling
) -> int:
    """Put the pieces from `order[begin]` on into the fullest sequences that have room for them.

    `num_sequences` are in use. A piece that fits in none of them opens another. Return the number
    in use afterwards, or -1 if `filling` has too few.
    """
    top = filling.top
    words = np.zeros((len(top) >> 6) + 1, np.uint64)
    groups = np.zeros((len(words) >> 6) + 1, np.uint64)
    for room in range(1, len(top)):
        if top[room] >= 0:
            put(words, groups, room)
    for i in range(begin, len(order)):
        size = sizes[order[i]]
        room = next_room(words, groups, size)
        if room >= 0:
            sequence = top[room]
            top[room] = filling.below[sequence]
            if top[room] < 0:
                clear(words, groups, room)
        elif num_sequences < len(filling.rooms):
            sequence = num_sequences
            num_sequences += 1
        else:
            return -1
        _place(filling, order[i], size, sequence)
        _set_aside(filling, sequence)
        rest = filling.rooms[sequence]
        if top[rest] == sequence:
            put(words, groups, rest)
    return num_sequences


@compiled
def longest_pieces(sizes: Int32Array, order: Int32Array, tenths: int) -> int:
    """Return how many pieces, longest first, have at most `tenths` tenths of all tokens."""
    rest = sizes.sum() * tenths // 10
    for i in range(len(order)):
        rest -= sizes[order[i]]
        if rest < 0:
            return i
    return len(order)


@compiled
def costs_and_first_pieces(
    sizes: Int32Array, sequence_of: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Return the sum of squared sizes and the first piece of each sequence."""
    costs = np.zeros(sequence_of.max() + 1, np.int64)
    first_pieces = np.full(len(costs), -1, np.int64)
    for i in range(len(sizes)):
        costs[sequence_of[i]] += np.int64(sizes[i]) * np.int64(sizes[i])
        if first_pieces[sequence_of[i]] < 0:
            first_pieces[sequence_of[i]] = i
    return costs, first_pieces


@compiled
def split_costliest(
    sizes: Int32Array, order: Int32Array, sequence_of: Int32Array, present: int, wanted: int
) -> None:
    """Split sequences in place, from `present` to `wanted`, at most one per piece.

    The most expensive ones are split in two: each piece, longest first, goes to the half of lower
    cost.
    """
    while present < wanted:
        costs = costs_and_first_pieces(sizes, sequence_of)[0]
        counts = np.bincount(sequence_of)
        other_half = np.full(present, -1, np.int32)
        for sequence in np.argsort(-costs, kind="mergesort"):
            if counts[sequence] > 1 and present < wanted:
                other_half[sequence] = present
                present += 1
        costs = np.zeros(present, np.int64)
        for piece in order:
            sequence = sequence_of[piece]
            other = other_half[sequence]
            if other >= 0 and costs[other] < costs[sequence]:
                sequence = other
            sequence_of[piece] = sequence
            costs[sequence] += np.int64(sizes[piece]) * np.int64(sizes[piece])
