"""The order in which sequences are trained on: shuffled, or shuffled within bands of a key.

Both are pure functions of the plan, a seed and an epoch. Where a plan balances ranks, the
sequences of a step stay together: groups of them are shuffled or sorted. Sequences at the end of
a window that make no complete group come last.
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
    size = step_size(plan)
    windows = zip(plan.window_starts[:-1].tolist(), plan.window_starts[1:].tolist(), strict=True)
    parts = [np.arange(first, stop - size + 1, size) for first, stop in windows]
    firsts = np.concatenate([*parts, np.empty(0, np.int64)])
    shuffled_firsts = firsts[Permutation(len(firsts), seed, epoch)(np.arange(len(firsts)))]
    order = (shuffled_firsts[:, None] + np.arange(size)).reshape(-1)
    if len(order) == len(plan):
        return order
    rest = np.ones(len(plan), np.bool_)
    rest[order] = False
    return np.concatenate([order, np.flatnonzero(rest)])


def step_size(plan: Plan) -> int:
    """Sequences of a plan that belong into one step: as many as ranks if it balances them."""
    options = plan.manifest.options
    return int(options["ranks"]) if options["packing"] == "balanced" else 1


def banded(order: Int64Array, keys: FloatArray, bands: int, size: int = 1) -> Int64Array:
    """`order` sorted by key in `bands` bands of equal size, each in the order that it had.

    `keys` has shape (num_sequences,). Sequences with nearly equal keys come in nearly equal
    steps, and yet a batch is not made of one pattern. Groups of `size` sequences stay together
    and are sorted by their mean key.
    """
    groups = order[: len(order) // size * size].reshape(-1, size)
    ranks = np.empty(len(groups), np.int64)
    ranks[np.argsort(keys[groups].mean(axis=1), kind="stable")] = np.arange(len(groups))
    band_of = ranks * min(bands, len(groups)) // max(len(groups), 1)
    sorted_groups = groups[np.argsort(band_of, kind="stable")]
    return np.concatenate([sorted_groups.reshape(-1), order[groups.size :]])


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
    means: FloatArray = np.add.reduceat(values, plan.offsets[:-1]) / counts
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
        values = numbers.to_numpy()  # what is missing becomes NaN
        if gaps := int((~np.isfinite(values)).sum()):
            why = f"{gaps} documents of a shard have no finite value"
            raise UserError(f"the column {name!r} has gaps", why=why)
        parts.append(values)
    result: FloatArray = np.concatenate(parts)
    return result
