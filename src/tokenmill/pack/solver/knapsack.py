"""The knapsack of column generation: find the patterns of the highest value at given prices."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inner


@compiled
def best_patterns(
    prices: Int64Array, sizes: Int32Array, length: int, depth: int
) -> tuple[np.int64, Int64Array, Int32Array]:
    """Return the highest value of a pattern, and the best pattern that contains each size.

    `prices` and the increasing `sizes` have shape (m,). Patterns are returned as offsets and
    decreasing sizes. `depth` limits the pieces of a pattern, with a layer of the knapsack for each;
    0 is no limit.
    """
    worth, last = _knapsack(prices, sizes, length, depth)
    most = np.int64(0)
    offsets, slots = [0], [np.int32(0) for _ in range(0)]
    for i in range(len(sizes)):
        layer, room, start = len(worth) - 1, length - sizes[i], len(slots)
        most = max(most, prices[i] + worth[layer, room])
        slots.append(sizes[i])
        while layer > 0 and worth[layer, room] > 0:
            size = last[layer, room]
            if size > 0:
                slots.append(size)
                room -= size
            if depth > 0:
                layer -= 1
            elif size == 0:
                room -= 1
        slots[start:] = sorted(slots[start:], reverse=True)
        offsets.append(len(slots))
    return most, np.array(offsets), np.array(slots, np.int32)


@inner
def _knapsack(
    prices: Int64Array, sizes: Int32Array, length: int, depth: int
) -> tuple[Int64Array, Int32Array]:
    """Return the highest value for each layer and room, and a size in it (0: as one layer less)."""
    layers = depth - 1 if depth > 0 else 1
    worth = np.zeros((layers + 1, length + 1), np.int64)
    last = np.zeros((layers + 1, length + 1), np.int32)
    for layer in range(1, layers + 1):
        before = worth[layer - 1] if depth > 0 else worth[layer]
        best, choice = worth[layer], last[layer]
        best[:] = worth[layer - 1]
        cheaper = np.int64(0)
        for i in range(len(sizes)):
            # Skip a size if a smaller one has the same price or a higher one.
            if prices[i] <= cheaper:
                continue
            cheaper = prices[i]
            for room in range(sizes[i], length + 1):
                value = before[room - sizes[i]] + cheaper
                if value > best[room]:
                    best[room] = value
                    choice[room] = sizes[i]
    return worth, last
