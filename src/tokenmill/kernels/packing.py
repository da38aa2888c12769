"""Loops that put pieces into sequences: one by one, all of a size at once, or from a stream.

The rooms of open sequences are a two-level bitmap, to find the next larger one quickly. Bit r of
`words` is set if a sequence has room for exactly r tokens. Bit w of `groups` is set if word w is
not zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.memory import trailing_zeros

Bitmap = npt.NDArray[np.uint64]


@inlined
def next_room(words: Bitmap, groups: Bitmap, size: int) -> int:
    """Return the smallest room of an open sequence that is at least `size`, or -1."""
    word = size >> 6
    bits = words[word] >> np.uint64(size & 63)
    if bits != 0:
        return size + trailing_zeros(bits)
    word += 1
    group = word >> 6
    if group < len(groups):
        bits = groups[group] >> np.uint64(word & 63)
        if bits != 0:
            word += trailing_zeros(bits)
            return (word << 6) + trailing_zeros(words[word])
    for later in range(group + 1, len(groups)):
        if groups[later] != 0:
            word = (later << 6) + trailing_zeros(groups[later])
            return (word << 6) + trailing_zeros(words[word])
    return -1


@inlined
def put(words: Bitmap, groups: Bitmap, room: int) -> None:
    """Set the bit of a room."""
    words[room >> 6] |= np.uint64(1) << np.uint64(room & 63)
    groups[room >> 12] |= np.uint64(1) << np.uint64((room >> 6) & 63)


@inlined
def clear(words: Bitmap, groups: Bitmap, room: int) -> None:
    """Clear the bit of a room."""
    words[room >> 6] &= ~(np.uint64(1) << np.uint64(room & 63))
    if words[room >> 6] == 0:
        groups[room >> 12] &= ~(np.uint64(1) << np.uint64((room >> 6) & 63))


@compiled
def longest_first(sizes: Int32Array, length: int) -> Int32Array:
    """Return the indices of pieces by decreasing size, by a stable counting sort."""
    places = np.zeros(length + 2, np.int64)
    for size in sizes:
        places[length - size + 1] += 1
    for i in range(1, length + 2):
        places[i] += places[i - 1]
    order = np.empty(len(sizes), np.int32)
    for i in range(len(sizes)):
        place = length - sizes[i]
        order[places[place]] = i
        places[place] += 1
    return order


@compiled
def count_sizes(sizes: Int32Array, length: int) -> Int64Array:
    """Return the number of pieces of each size from 0 to `length` tokens, shape (length + 1,)."""
    histogram = np.zeros(length + 1, np.int64)
    for size in sizes:
        histogram[size] += 1
    return histogram


@compiled
def next_fit(sizes: Int32Array, length: int, max_segments: int) -> Int32Array:
    """Return the sequence of each piece, if one is closed when the next piece does not fit."""
    sequence_of = np.empty(len(sizes), np.int32)
    sequence, used, segments = 0, 0, 0
    for i in range(len(sizes)):
        if segments and (used + sizes[i] > length or segments == max_segments):
            sequence, used, segments = sequence + 1, 0, 0
        sequence_of[i] = sequence
        used += sizes[i]
        segments += 1
    return sequence_of


@compiled
def first_fit(sizes: Int32Array, order: Int32Array, length: int, max_segments: int) -> Int32Array:
    """Return the sequence of each piece, if each goes into the first one with room for it.

    A tournament tree over the sequences stores the most room in every subtree: O(n log n).
    """
    sequence_of = np.empty(len(sizes), np.int32)
    num_segments = np.zeros(len(sizes), np.int32)
    leaves = 1
    while leaves < len(sizes):
        leaves *= 2
    # Node 1 is the root, nodes 2 i and 2 i + 1 are the children of node i.
    most_room = np.full(2 * leaves, length, np.int32)
    for piece in order:
        node = 1
        while node < leaves:
            node *= 2
            if most_room[node] < sizes[piece]:
                node += 1
        sequence = node - leaves
        sequence_of[piece] = sequence
        num_segments[sequence] += 1
        most_room[node] -= sizes[piece]
        if num_segments[sequence] == max_segments:
            most_room[node] = 0
        while node > 1:
            node >>= 1
            most_room[node] = max(most_room[2 * node], most_room[2 * node + 1])
    return sequence_of


@compiled
def place_sizes(
    histogram: Int64Array, length: int, max_segments: int, most_room: bool, distribute: bool
) -> tuple[Int64Array, int]:
    """Return placements, and the number of sequences."""
    placements = np.empty((1024, 4), np.int64)
    # Row i describes the sequences that placement i leaves open: (first sequence, number of
    # sequences, segments of each, placement below in the stack of this room). `latest` is the top
    # of the stack of each room.
    left_open = np.empty((1024, 4), np.int64)
    latest = np.full(length + 1, -1, np.int64)
    words = np.zeros((length >> 6) + 1, np.uint64)
    groups = np.zeros((len(words) >> 6) + 1, np.uint64)
    num_placements = 0
    num_sequences = 0
    for size in range(length, 0, -1):
        num_pieces = histogram[size]
        while num_pieces > 0:
            room = _find_room(words, groups, size, length, most_room)
            is_new = room < 0
            if is_new:
                first, available, num_segments = num_sequences, num_pieces, 0
                room, most = length, max_segments
            else:
                top = latest[room]
                first, available = left_open[top, 0], left_open[top, 1]
                num_segments = left_open[top, 2]
                most = max_segments - num_segments
            repeat = 1
            if distribute and room >= 2 * size:  # a division is as slow as everything else together
                repeat = min(room // size, most, num_pieces)
            count = min(available, num_pieces if repeat == 1 else num_pieces // repeat)
            if is_new:
                num_sequences += count
            elif count < available:
                left_open[top, 0] += count
                left_open[top, 1] -= count
            else:
                latest[room] = left_open[top, 3]
                if latest[room] < 0:
                    clear(words, groups, length - room if most_room else room)
            num_pieces -= count * repeat
            if num_placements == len(placements):
                placements, left_open = _doubled(placements), _doubled(left_open)
            _set_row(placements, num_placements, size, first, count, repeat)
            rest = room - repeat * size
            if rest > 0 and num_segments + repeat < max_segments:
                segments = num_segments + repeat
                _set_row(left_open, num_placements, first, count, segments, latest[rest])
                latest[rest] = num_placements
                put(words, groups, length - rest if most_room else rest)
            num_placements += 1
    return placements[:num_placements].copy(), num_sequences


@inlined
def _find_room(
    words: Bitmap,
    groups: Bitmap,
    size: int,
    length: int,
    most_room: bool,
) -> int:
    """Return the room to fill next, or -1. With `most_room`, bits are for used tokens, not room."""
    if not most_room:
        return next_room(words, groups, size)
    used = next_room(words, groups, 0)
    return length - used if 0 <= used <= length - size else -1


@inlined
def _doubled(rows: Int64Array) -> Int64Array:
    larger = np.empty((2 * len(rows), 4), np.int64)
    for i in range(len(rows)):  # assigning a slice takes 4 s to compile
        _set_row(larger, i, rows[i, 0], rows[i, 1], rows[i, 2], rows[i, 3])
    return larger


@inlined
def _set_row(rows: Int64Array, i: int, first: int, second: int, third: int, fourth: int) -> None:
    rows[i, 0] = first
    rows[i, 1] = second
    rows[i, 2] = third
    rows[i, 3] = fourth


@compiled
def assign_placements(order: Int32Array, rows: Int64Array) -> Int32Array:
    """Return the sequence of each piece, shape (n,). `order` and `rows` are by decreasing size."""
    sequence_of = np.empty(len(order), np.int32)
    done = 0
    for i in range(len(rows)):
        first = rows[i, 1]
        for sequence in range(first, first + rows[i, 2]):
            for _ in range(rows[i, 3]):
                sequence_of[order[done]] = sequence
                done += 1
    return sequence_of


@compiled
def best_fit_of_open(
    sizes: Int32Array,
    opened: tuple[Int64Array, Int64Array, Int64Array],
    num_opened: int,
    limits: tuple[int, int, int],
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array, Int64Array]:
    """Return each piece's sequence, closed sequences, and the rooms and segments of open ones."""
    open_sequences, open_rooms, open_segments = opened
    length, max_segments, most_open = limits
    sequence = np.empty(most_open, np.int64)
    segments = np.zeros(most_open, np.int64)
    for i in range(len(open_sequences)):
        sequence[i], segments[i] = open_sequences[i], open_segments[i]
    below, top, words, groups = _stacked(open_rooms, length, most_open)
    free = np.arange(most_open)
    num_open = len(open_sequences)
    sequence_of = np.empty(len(sizes), np.int64)
    closed = np.empty(len(sizes) + num_open, np.int64)
    num_closed = 0
    for piece in range(len(sizes)):
        if sizes[piece] == length or max_segments == 1:  # full at once, so it needs no slot
            sequence_of[piece] = closed[num_closed] = num_opened
            num_opened += 1
            num_closed += 1
            continue
        room = next_room(words, groups, sizes[piece])
        is_new = room < 0
        if is_new and num_open == most_open:
            room = next_room(words, groups, 0)  # close the fullest one
        if room >= 0:
            slot = top[room]
            top[room] = below[slot]
            if top[room] < 0:
                clear(words, groups, room)
        if is_new:
            if num_open == most_open:
                closed[num_closed] = sequence[slot]
                num_closed += 1
            else:
                slot = free[num_open]
                num_open += 1
            sequence[slot], segments[slot], room = num_opened, 0, length
            num_opened += 1
        sequence_of[piece] = sequence[slot]
        segments[slot] += 1
        room -= sizes[piece]
        if room == 0 or segments[slot] == max_segments:
            closed[num_closed] = sequence[slot]
            num_closed += 1
            num_open -= 1
            free[num_open] = slot
        else:
            put(words, groups, room)
            below[slot] = top[room]
            top[room] = slot
    slots, rooms = _unstacked(below, top, num_open)
    return sequence_of, closed[:num_closed], sequence[slots], rooms, segments[slots]


@inlined
def _stacked(
    rooms: Int64Array, length: int, most_open: int
) -> tuple[Int64Array, Int64Array, Bitmap, Bitmap]:
    """Stack slots by room, the last on top. Return the slot below each, the tops, and bitmaps."""
    below = np.empty(most_open, np.int64)
    top = np.full(length + 1, -1, np.int64)
    words: Bitmap = np.zeros((length >> 6) + 1, np.uint64)
    groups: Bitmap = np.zeros((len(words) >> 6) + 1, np.uint64)
    for slot in range(len(rooms)):
        put(words, groups, rooms[slot])
        below[slot] = top[rooms[slot]]
        top[rooms[slot]] = slot
    return below, top, words, groups


@inlined
def _unstacked(below: Int64Array, top: Int64Array, num_open: int) -> tuple[Int64Array, Int64Array]:
    """Return slots and their rooms in an order from which `_stacked` builds the same stacks."""
    slots = np.empty(num_open, np.int64)
    rooms = np.empty(num_open, np.int64)
    k = num_open
    for room in range(len(top) - 1, 0, -1):
        slot = top[room]
        while slot >= 0:  # from the top of a stack down, hence from the end of the list
            k -= 1
            slots[k], rooms[k] = slot, room
            slot = below[slot]
    return slots, rooms
