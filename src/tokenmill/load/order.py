"""The order in which sequences are trained on: shuffled, or shuffled within bands of a key.

Both are pure functions of the plan, a seed and an epoch. Where a plan balances ranks, the
sequences of a step stay together and groups of them are shuffled.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UserError
from tokenmill.pack.window import sums
from tokenmill.permutation import Permutation
from tokenmill.records import Int64Array
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

Key = Literal["length", "depth"]
FloatArray = npt.NDArray[np.float64]


def shuffled(plan: Plan, seed: int, epoch: int = 0) -> Int64Array:
    """Shape (num_sequences,): the sequence that stands at each place of an epoch."""
    group = plan.manifest.options["ranks"] if plan.manifest.options["packing"] == "balanced" else 1
    num_groups = -(-len(plan) // group)
    groups = Permutation(num_groups, seed, epoch)(np.arange(num_groups))
    order = (groups[:, None] * group + np.arange(group)).reshape(-1)
    return order[order < len(plan)]


def banded(order: Int64Array, keys: FloatArray, bands: int) -> Int64Array:
    """`order` sorted by key in `bands` bands of equal size, each in the order that it had.

    `keys` has shape (num_sequences,). Sequences with nearly equal keys come in nearly equal
    steps, and yet a batch is not made of one pattern.
    """
    ranks = np.empty(len(order), np.int64)
    ranks[np.argsort(keys[order], kind="stable")] = np.arange(len(order))
    return order[np.argsort(ranks * bands // max(len(order), 1), kind="stable")]


def sequence_keys(plan: Plan, key: str, dataset: Dataset | None = None) -> FloatArray:
    """Shape (num_sequences,): what a curriculum sorts by.

    "length" is the mean length of a sequence's segments in tokens, "depth" their number; any
    other key is a column of the documents table, whose mean over the segments' documents is
    taken.

    Raises:
        UserError: the column does not exist, or does not hold numbers.
    """
    counts = np.diff(plan.offsets)
    if key == "depth":
        return counts.astype(np.float64)
    if key == "length":
        return sums(np.asarray(plan.lengths), plan.offsets) / np.maximum(counts, 1)
    if dataset is None:
        raise UserError(f"a curriculum by the column {key!r} needs the dataset")
    values = _column(dataset, key)[plan.documents]
    totals = np.concatenate([[0.0], np.cumsum(values)])
    means: FloatArray = (totals[plan.offsets[1:]] - totals[plan.offsets[:-1]]) / counts
    return means


def _column(dataset: Dataset, name: str) -> FloatArray:
    """Shape (num_documents,): a kept column as numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for shard in dataset.shards:
        table = shard.documents()
        if f"column.{name}" not in table.column_names:
            kept = [each for each in table.column_names if each.startswith("column.")]
            raise UserError(
                f"the documents table has no column {name!r}",
                where=str(dataset.folder),
                why=f"it keeps {', '.join(kept) or 'none'}",
                hint="build the dataset with --keep to have further columns",
            )
        try:
            numbers = pc.cast(table.column(f"column.{name}"), pa.float64())
        except pa.ArrowInvalid as error:
            why = str(error)
            raise UserError(f"the column {name!r} does not hold numbers", why=why) from error
        if numbers.null_count:
            why = f"{numbers.null_count} documents have no value"
            raise UserError(f"the column {name!r} has gaps", why=why)
        parts.append(numbers.to_numpy())
    result: FloatArray = np.concatenate(parts)
    return result
