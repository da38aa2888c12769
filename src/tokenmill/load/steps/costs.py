"""Tokens and attention costs of sequences, and how to deal them to ranks."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.kernels import batches as kernel
from tokenmill.kernels.sequences import sums_of_lengths
from tokenmill.store.plan import Plan


def token_counts(plan: Plan, sequences: Int64Array) -> Int64Array:
    """Return the number of tokens of each sequence, without padding, shape (n,).

    Raises:
        VerificationError: the plan's offsets are out of order.
    """
    return _checked_sums(plan, sequences, squared=False)


def attention_costs(plan: Plan, sequences: Int64Array) -> Int64Array:
    """Return the sum of squared segment lengths of each sequence, shape (n,).

    Raises:
        VerificationError: the plan's offsets are out of order.
    """
    return _checked_sums(plan, sequences, squared=True)


def _checked_sums(plan: Plan, sequences: Int64Array, *, squared: bool) -> Int64Array:
    arrays = np.asarray(plan.offsets), np.asarray(plan.lengths)
    sums = sums_of_lengths(sequences, *arrays, squared)
    if len(sums) < len(sequences):
        raise plan.damaged("its offsets are out of order")
    return sums


def deal(costs: Int64Array, world_size: int) -> Int64Array:
    """Return the rows of each rank in their order, shape (world_size, num_rows / world_size).

    Each row, the most expensive first, goes to the rank with the lowest cost that still has room
    (R. L. Graham: Bounds on multiprocessing timing anomalies, 1969). The rows of a batch are the
    same for any number of ranks.
    """
    ranks = kernel.deal(costs, np.argsort(-costs, kind="stable"), world_size)
    return np.argsort(ranks, kind="stable").reshape(world_size, -1)
