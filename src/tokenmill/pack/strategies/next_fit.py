"""Next-fit: a sequence is closed as soon as the next piece does not fit. Keeps the order.

Sequences of 8 and pieces of 6, 7, 2, 5, 3 tokens give [6] [7] [2 5] [3].
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int32Array, Sequences
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy, deal


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces in their order."""
    assign = for_steps(_assign, len(pieces))
    return deal(pieces, assign(pieces.sizes, options.length, options.segment_limit))


STRATEGY = Strategy(pack)


@compiled
def _assign(sizes: Int32Array, length: int, max_segments: int) -> Int32Array:
    sequence_of = np.empty(len(sizes), np.int32)
    sequence, used, segments = 0, 0, 0
    for i in range(len(sizes)):
        if segments and (used + sizes[i] > length or segments == max_segments):
            sequence, used, segments = sequence + 1, 0, 0
        sequence_of[i] = sequence
        used += sizes[i]
        segments += 1
    return sequence_of
