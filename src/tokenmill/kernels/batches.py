"""Loops that make batches: mix sources by shares, deal rows to ranks, mask tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.permutation import unit_interval
from tokenmill.kernels.rows import REAL


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
def _furthest_behind(lags: Int64Array, shares: Int64Array, row_length: int) -> int:
    """Return the source that would be furthest behind after one more row; -1 for none."""
    best = -1
    for i in range(len(lags)):
        if shares[i] <= 0:
            continue
        if best < 0 or lags[i] + shares[i] * row_length > lags[best] + shares[best] * row_length:
            best = i
    return best


@inlined
def _give_away(shares: Int64Array, lags: Int64Array, source: int) -> None:
    """Give the share of a source that has ended to the others, in proportion to their shares."""
    share, whole = shares[source], np.sum(shares)
    shares[source] = lags[source] = 0
    for i in range(len(shares)):
        if share < whole:
            shares[i] = shares[i] * whole // (whole - share)


@compiled
def deal(costs: Int64Array, descending: Int64Array, world_size: int) -> Int64Array:
    """Return the rank of each row: the one with the lowest cost that still has room."""
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


@compiled
def mask_row(
    row: tuple[Any, Any, npt.NDArray[np.uint8]],
    draws: npt.NDArray[np.uint64],
    shares: tuple[float, float, float],
    others: tuple[int, int],
    kept: Int64Array,
) -> None:
    """Mask the tokens of a row in place, and write their labels. `draws` has three for each."""
    ids, labels, flags = row
    probability, mask_share, change_share = shares
    mask_id, vocab_size = others
    for j in range(len(ids)):
        if not flags[j] & REAL or unit_interval(draws[3 * j]) >= probability:
            continue
        place = np.searchsorted(kept, ids[j])
        if place < len(kept) and kept[place] == ids[j]:
            continue
        labels[j] = ids[j]
        share = unit_interval(draws[3 * j + 1])
        if share < mask_share:
            ids[j] = mask_id
        elif share < change_share:
            ids[j] = np.int64(draws[3 * j + 2] % np.uint64(vocab_size))
