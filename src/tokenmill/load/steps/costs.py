"""Tokens and attention costs of the sequences of a plan, from the plan alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.kernels.compiled import compiled
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
    sums = _sums(sequences, *arrays, squared)
    if len(sums) < len(sequences):
        raise plan.damaged("its offsets are out of order")
    return sums


@compiled
def _sums(
    sequences: Int64Array, offsets: Int64Array, lengths: npt.NDArray[np.integer], squared: bool
) -> Int64Array:
    """Return sums over the segments of each sequence, up to the first invalid offset."""
    sums = np.zeros(len(sequences), np.int64)
    for i in range(len(sequences)):
        first, last = offsets[sequences[i]], offsets[sequences[i] + 1]
        if first < 0 or last <= first or last > len(lengths):
            return sums[:i]
        for k in range(first, last):
            length = np.int64(lengths[k])
            sums[i] += length * length if squared else length
    return sums
