"""The order in which sequences are trained on: shuffled, or shuffled within bands of a key.

Both are pure functions of the plan, a seed and an epoch. Where a plan balances ranks, the
sequences of a step stay together: groups of them are shuffled or sorted. Sequences at the end of
a window that make no complete group come last.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UserError
from tokenmill.pack.options import options_of_plan
from tokenmill.pack.window import sums
from tokenmill.permutation import Permutation
from tokenmill.records import Int64Array
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Steps:
    """Sequences of a plan that belong into one step, and stay together."""

    size: int
    """As many as ranks where the plan balances them, else 1."""
    firsts: Int64Array
    """Shape (num_steps,): the first sequence of each complete step."""
    rest: Int64Array
    """Sequences at the end of a window that make no complete step."""


def steps_of(plan: Plan) -> Steps:
    """The steps of a plan, in its order."""
    options = options_of_plan(plan.manifest.options, str(plan.folder))
    size = options.ranks if options.packing == "balanced" else 1
    windows = itertools.pairwise(plan.window_starts.tolist())
    parts = [np.arange(first, stop - size + 1, size) for first, stop in windows]
    firsts = np.concatenate([*parts, np.empty(0, np.int64)])
    alone = np.ones(len(plan), np.bool_)
    alone[(firsts[:, None] + np.arange(size)).reshape(-1)] = False
    return Steps(size, firsts, np.flatnonzero(alone))


def shuffled(plan: Plan, seed: int, epoch: int = 0) -> Int64Array:
    """Shape (num_sequences,): the sequence that stands at each place of an epoch."""
    steps = steps_of(plan)
    places = np.arange(len(steps.firsts))
    firsts = steps.firsts[Permutation(len(places), seed, epoch)(places)]
    return np.concatenate([(firsts[:, None] + np.arange(steps.size)).reshape(-1), steps.rest])


def banded(
    order: Int64Array, keys: FloatArray, bands: int, steps: Steps | None = None
) -> Int64Array:
    """`order` sorted by key in `bands` bands of equal size, each in the order that it had.

    `keys` has shape (num_sequences,). Sequences with nearly equal keys come in nearly equal
    steps, and yet a batch is not made of one pattern. The sequences of `steps` stay together and
    are sorted by their mean key; those of no step come last.
    """
    size = 1 if steps is None else steps.size
    alone = np.zeros(len(order), np.bool_) if steps is None else np.isin(order, steps.rest)
    groups = order[~alone].reshape(-1, size)
    ranks = np.empty(len(groups), np.int64)
    ranks[np.argsort(keys[groups].mean(axis=1), kind="stable")] = np.arange(len(groups))
    band_of = ranks * min(bands, len(groups)) // max(len(groups), 1)
    sorted_groups = groups[np.argsort(band_of, kind="stable")]
    return np.concatenate([sorted_groups.reshape(-1), order[alone]])


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

    name = name.removeprefix("column.")
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
