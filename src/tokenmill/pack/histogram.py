"""Packing in bulk, from the number of pieces of each size instead of single pieces.

All pieces of a size are placed together, from the longest size down: as many at once as there are
sequences with the same contents. The cost depends on the number of sizes, not on the number of
pieces. As in M. M. Krell, M. Kosec, S. P. Perez, A. Fitzgibbon: "Efficient Sequence Packing without
Cross-contamination" (https://arxiv.org/abs/2107.02027). Like its published code, this keeps one
stack of sequences for every room, the latest on top. With a limit on segments, the order in a stack
decides how many sequences there are.

The published procedures differ in how many pieces of a size a sequence takes at once. In
`shortest_pack_first` and `longest_pack_first` it is one, even in a new sequence. With "distribute",
it is as many as fit, and longest-pack-first becomes `best_fit`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array, Sequences
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.options import PackOptions
from tokenmill.pack.rooms import Bitmap, clear, next_room, put
from tokenmill.pack.sorting import longest_first
from tokenmill.pack.strategy import Pieces, deal


@dataclass(frozen=True, slots=True)
class Placements:
    """The sizes in each sequence."""

    rows: Int64Array
    """Shape (n, 4), sorted by decreasing size. A row (size, first, count, repeat) puts `repeat`
    pieces of `size` tokens into each of the sequences [first, first + count)."""
    num_sequences: int


Placing = Callable[[Int64Array, int, int], Placements]


def best_fit(histogram: Int64Array, length: int, max_segments: int) -> Placements:
    """Pack by best-fit decreasing: pieces go into the least room that fits, as many as fit.

    `histogram` is the number of pieces of each size in tokens, shape (length + 1,), with none of
    size 0. This makes as many sequences as an implementation that places one piece at a time: if a
    piece leaves room for another of its size, that sequence is also the best fit for the next one.
    """
    return _placements(histogram, length, max_segments, most_room=False, distribute=True)


def longest_pack_first(histogram: Int64Array, length: int, max_segments: int) -> Placements:
    """Pack by LPFHP: pieces go into the least room that fits, one of a size at a time."""
    return _placements(histogram, length, max_segments, most_room=False, distribute=False)


def shortest_pack_first(histogram: Int64Array, length: int, max_segments: int) -> Placements:
    """Pack by SPFHP: pieces go into the most room (worst fit), one of a size at a time."""
    return _placements(histogram, length, max_segments, most_room=True, distribute=False)


def pack_in_bulk(place: Placing, pieces: Pieces, options: PackOptions) -> Sequences:
    """Place sizes with `place`, then assign pieces to the placements of their size, in order."""
    histogram = count_sizes(pieces.sizes, options.length)
    placements = place(histogram, options.length, options.segment_limit)
    order = longest_first(pieces.sizes, options.length)
    return deal(pieces, for_steps(_assign, len(order))(order, placements.rows))


def count_sizes(sizes: Int32Array, length: int) -> Int64Array:
    """Return the number of pieces of each size from 0 to `length` tokens, shape (length + 1,)."""
    return for_steps(_counted, len(sizes))(sizes, length)


@compiled
def _counted(sizes: Int32Array, length: int) -> Int64Array:
    histogram = np.zeros(length + 1, np.int64)
    for size in sizes:
        histogram[size] += 1
    return histogram


def _placements(
    histogram: Int64Array, length: int, max_segments: int, *, most_room: bool, distribute: bool
) -> Placements:
    if histogram.shape != (length + 1,):
        raise ValueError(f"histogram of shape {histogram.shape}, not ({length + 1},)")
    if histogram[0] > 0:
        raise ValueError(f"{histogram[0]} pieces of size 0")
    if max_segments < 1:
        raise ValueError(f"max_segments is {max_segments}, not 1 or more")
    place = for_steps(_place, int(histogram.sum()) + length // 16)
    rows, num_sequences = place(histogram, length, max_segments, most_room, distribute)
    return Placements(rows, int(num_sequences))


@compiled
def _place(
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
def _assign(order: Int32Array, rows: Int64Array) -> Int32Array:
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
