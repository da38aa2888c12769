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

from tokenmill.core.records import Int32Array, Int64Array, Sequences
from tokenmill.kernels import packing as kernel
from tokenmill.kernels.interpreted import for_steps
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategy import Pieces, deal


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
    assign = for_steps(kernel.assign_placements, len(order))
    return deal(pieces, assign(order, placements.rows))


def longest_first(sizes: Int32Array, length: int) -> Int32Array:
    """Return the indices of pieces by decreasing size; pieces of one size keep their order."""
    return for_steps(kernel.longest_first, len(sizes) + length // 16)(sizes, length)


def count_sizes(sizes: Int32Array, length: int) -> Int64Array:
    """Return the number of pieces of each size from 0 to `length` tokens, shape (length + 1,)."""
    return for_steps(kernel.count_sizes, len(sizes))(sizes, length)


def _placements(
    histogram: Int64Array, length: int, max_segments: int, *, most_room: bool, distribute: bool
) -> Placements:
    if histogram.shape != (length + 1,):
        raise ValueError(f"histogram of shape {histogram.shape}, not ({length + 1},)")
    if histogram[0] > 0:
        raise ValueError(f"{histogram[0]} pieces of size 0")
    if max_segments < 1:
        raise ValueError(f"max_segments is {max_segments}, not 1 or more")
    place = for_steps(kernel.place_sizes, int(histogram.sum()) + length // 16)
    rows, num_sequences = place(histogram, length, max_segments, most_room, distribute)
    return Placements(rows, int(num_sequences))
