"""Deal the rows of a global batch to ranks, so that their attention costs are similar."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.kernels.compiled import compiled


def deal(costs: Int64Array, world_size: int) -> Int64Array:
    """Return the rows of each rank in their order, shape (world_size, num_rows / world_size).

    Each row, the most expensive first, goes to the rank with the lowest cost that still has room
    (R. L. Graham: Bounds on multiprocessing timing anomalies, 1969). The rows of a batch are the
    same for any number of ranks.
    """
    ranks = _deal(costs, np.argsort(-costs, kind="stable"), world_size)
    return np.argsort(ranks, kind="stable").reshape(world_size, -1)


@compiled
def _deal(costs: Int64Array, descending: Int64Array, world_size: int) -> Int64Array:
    ranks = np.empty(len(costs), np.int64)
    sums = np.zeros(world_size, np.int64)
    room = np.full(world_size, len(costs) // world_size)
    for row in descending:
        best = -1
        for rank in range(world_size):
            if room[rank] and (best < 0 or sums[rank] < sums[best]):
                best = rank
        ranks[row] = best
        sums[best] += costs[row]
        room[best] -= 1
    return ranks
