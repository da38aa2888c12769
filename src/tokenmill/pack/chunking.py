"""Concatenate and chunk: cut documents so that every sequence is full."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, Segments, Sequences
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces


def chunk(pieces: Pieces, starts_anew: npt.NDArray[np.bool_], options: PackOptions) -> Sequences:
    """Fill sequences with pieces in order, and cut pieces where a sequence is full.

    Pieces can have any length. A piece starts a new sequence if `starts_anew`, shape (n,), is true.
    """
    lengths = pieces.segments.lengths
    # Bound the number of cuts c. A cut adds a segment, and only full sequences end with a cut. A
    # full sequence of s segments has more than length - reserve * (s + 1) tokens, so for n pieces
    # c * (length - reserve) <= tokens + reserve * (n + c).
    reserve = options.reserve
    places = int(lengths.sum(dtype=np.int64)) + reserve * len(lengths)
    room = len(lengths) + places // (options.length - 2 * reserve) + 1
    of, parts, taken, offsets = for_steps(_chunk, room)(
        lengths, starts_anew, (options.length, reserve), options.segment_limit, room
    )
    whole = pieces.segments.take(of)
    return Sequences(Segments(whole.documents, whole.starts + parts, taken), offsets)


@compiled
def _chunk(
    lengths: Int32Array,
    starts_anew: npt.NDArray[np.bool_],
    space: tuple[int, int],
    max_segments: int,
    room: int,
) -> tuple[Int32Array, Int32Array, Int32Array, Int64Array]:
    """Return each segment's piece, start and length, and the offsets of sequences."""
    length, reserve = space
    of = np.empty(room, np.int32)
    parts = np.empty(room, np.int32)
    taken = np.empty(room, np.int32)
    offsets = np.zeros(room + 1, np.int64)
    k, sequence, used = 0, 0, 0
    for i in range(len(lengths)):
        start = 0
        if used and starts_anew[i]:
            sequence += 1
            offsets[sequence] = k
            used = 0
        while start < lengths[i]:
            part = min(lengths[i] - start, length - reserve - used)
            of[k], parts[k], taken[k] = i, start, part
            k += 1
            start += part
            used += part + reserve
            if used + reserve >= length or k - offsets[sequence] == max_segments:
                sequence += 1
                offsets[sequence] = k
                used = 0
    if used:
        sequence += 1
        offsets[sequence] = k
    return of[:k], parts[:k], taken[:k], offsets[: sequence + 1]
