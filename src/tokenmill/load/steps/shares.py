"""Choose the source of each row of a mixture: the one furthest behind its share."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.kernels.compiled import compiled, inlined


@inlined
def _furthest_behind(lags: Int64Array, shares: Int64Array, row_length: int) -> int:
    """Return the source that would be furthest behind after one more row; -1 for none."""
    best = -1
    for i in range(len(lags)):
        if shares[i] <= 0:
            continue
        if best < 0 or lags[i] + shares[i] * row_length > lags[best] + shares[best] * row_length:
            best = i
    return best


@compiled
def choose_sources(
    tokens: Int64Array,
    lags: Int64Array,
    room: Int64Array,
    shares: Int64Array,
    rule: tuple[int, bool],
) -> tuple[Int64Array, Int64Array]:
    """Return the source of each row of a step, shape (num_rows,), and the rows of each source.

    If the mixture ends, there are fewer rows. `lags` is updated in place.
    """
    row_length, stops = rule
    num_sources, num_rows = tokens.shape
    chosen = np.empty(num_rows, np.int64)
    taken = np.zeros(num_sources, np.int64)
    active = shares.copy()
    for row in range(num_rows):
        while True:
            best = _furthest_behind(lags, active, row_length)
            if best < 0 or (taken[best] < room[best, 0] and room[best, 1] > 0):
                break
            if stops:
                return chosen[:row], taken
            _give_away(active, lags, best)
        if best < 0:
            return chosen[:row], taken
        count = tokens[best, taken[best]]
        lags += active * count
        lags[best] -= np.sum(active) * count
        room[best, 1] -= count
        chosen[row] = best
        taken[best] += 1
    return chosen, taken


@inlined
def _give_away(shares: Int64Array, lags: Int64Array, source: int) -> None:
    """Give the share of a source that has ended to the others, in proportion to their shares."""
    share, whole = shares[source], np.sum(shares)
    shares[source] = lags[source] = 0
    for i in range(len(shares)):
        if share < whole:
            shares[i] = shares[i] * whole // (whole - share)
