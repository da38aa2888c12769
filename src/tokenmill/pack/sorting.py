"""Sort pieces for strategies that place the longest first."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int32Array
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps


def longest_first(sizes: Int32Array, length: int) -> Int32Array:
    """Return the indices of pieces by decreasing size, by a stable counting sort."""
    return for_steps(_sorted, len(sizes) + length // 16)(sizes, length)


@compiled
def _sorted(sizes: Int32Array, length: int) -> Int32Array:
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
