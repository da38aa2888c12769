"""Order-preserving: the packing of lowest cost that keeps the order, by dynamic programming.

Documents are grouped into runs. A run is concatenated and chunked, and its last sequence is padded.
The cost of a run is its padding plus `cut_cost` for every cut inside a document, and runs are
chosen for the lowest total cost. Next-fit and concat-and-chunk are the two extremes.

For sequences of 8 and documents of 6, 7, 2, 1: with a cut cost of 1, one run
[6, 2 of 7] [5 of 7, 2, 1] costs 1. With a cut cost of 9, the runs [6] [7] [2 1] cost 2 + 1 + 5 = 8.

A run has at most 16 sequences: O(n times the documents of a run).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenmill.core.records import Int64Array, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.chunking import chunk
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, Strategy

RUN_SEQUENCES = 16


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces of any length in their order, at the lowest cost."""
    price = options.length // 4 if options.cut_cost is None else options.cut_cost
    offsets = offsets_from_lengths(pieces.segments.lengths)
    starts_anew = np.zeros(len(pieces) + 1, np.bool_)
    most_in_run = RUN_SEQUENCES * options.length * len(pieces) // max(int(offsets[-1]), 1)
    run_starts = for_steps(_run_starts, len(pieces) * (most_in_run + 1))
    starts_anew[run_starts(offsets, options.length, price)] = True
    return chunk(pieces, starts_anew, options)


def _problems(options: PackOptions) -> Iterator[str]:
    if options.reserve:
        yield "pack.reserve: cannot be combined with order-preserving"
    if options.max_segments is not None:
        yield (
            "pack.max_segments: order-preserving cannot limit segments; next-fit can, and keeps "
            "the order"
        )


STRATEGY = Strategy(pack, cuts_documents=True, problems=_problems)


@compiled
def _run_starts(offsets: Int64Array, length: int, price: int) -> Int64Array:
    """Return the first document of each run, from the lowest cost of all documents before it."""
    num_documents = len(offsets) - 1
    cost = np.full(num_documents + 1, np.iinfo(np.int64).max, np.int64)
    cost[0] = 0
    came_from = np.zeros(num_documents + 1, np.int64)
    for first in range(num_documents):
        cuts = 0
        for last in range(first, num_documents):
            start, stop = offsets[last] - offsets[first], offsets[last + 1] - offsets[first]
            sequences = (stop + length - 1) // length
            if last > first and sequences > RUN_SEQUENCES:
                break
            cuts += (stop - 1) // length - start // length
            total = cost[first] + sequences * length - stop + price * cuts
            if total < cost[last + 1]:
                cost[last + 1] = total
                came_from[last + 1] = first
    places = [num_documents]
    while places[-1] > 0:
        places.append(came_from[places[-1]])
    return np.array(places[::-1], np.int64)
