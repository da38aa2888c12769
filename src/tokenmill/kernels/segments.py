"""Loops over the boundaries of segments in the rows of a batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.rows import REAL, RESTART

RESTARTS = np.uint64(0x0202020202020202)
"""RESTART in each byte of a word."""


@compiled
def find_segments(
    flags: npt.NDArray[np.uint8], words: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return the edges of segments over all rows, and which segments are padding.

    `words` are the same flags, eight at a time.
    """
    count = 0
    for j in range(len(flags)):
        count += int(flags[j] & RESTART) >> 1
    edges = np.empty(count + 1, np.int32)
    is_padding = np.empty(count, np.bool_)
    place = 0
    for word in range(-(-len(flags) // 8)):
        if word < len(words) and not words[word] & RESTARTS:
            continue
        for j in range(8 * word, min(8 * word + 8, len(flags))):
            if flags[j] & RESTART:
                edges[place] = j
                is_padding[place] = not flags[j] & REAL
                place += 1
    edges[count] = len(flags)
    return edges, is_padding


@compiled
def count_positions(
    positions: npt.NDArray[np.integer], edges: Int32Array, firsts: Int64Array
) -> None:
    """Fill the positions of all tokens, in each segment from its first one on."""
    for k in range(len(firsts)):
        segment = positions[edges[k] : edges[k + 1]]
        for j in range(len(segment)):
            segment[j] = firsts[k] + j
