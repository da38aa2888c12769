"""First-fit decreasing: longest pieces first, each into the first sequence that has room for it.

Sequences of 8 and pieces of 6, 7, 5, 2, 3 tokens give [7] [6 2] [5 3].

A tournament tree over the sequences stores the most room in every subtree: O(n log n).
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int32Array, Sequences
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.options import PackOptions
from tokenmill.pack.sorting import longest_first
from tokenmill.pack.strategy import Pieces, Strategy, deal


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces by first-fit decreasing."""
    order = longest_first(pieces.sizes, options.length)
    assign = for_steps(_assign, 4 * len(pieces))  # each piece goes down the tree and up again
    return deal(pieces, assign(pieces.sizes, order, options.length, options.segment_limit))


STRATEGY = Strategy(pack)


@compiled
def _assign(sizes: Int32Array, order: Int32Array, length: int, max_segments: int) -> Int32Array:
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
