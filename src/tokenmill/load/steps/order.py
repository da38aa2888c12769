"""The order in which sequences are trained on: shuffled, or shuffled within bands of a key.

A pure function of the plan, a seed and an epoch, computed for the places that are asked for.
Where a plan balances ranks, the sequences of a step stay together: groups of them are shuffled
or sorted. Sequences at the end of a window that make no complete group come last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.errors import UserError
from tokenmill.permutation import BlockPermutation, Permutation
from tokenmill.records import Int64Array
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

FloatArray = npt.NDArray[np.float64]
Shuffle = Literal["global", "blocks", "none"]

BLOCK = 1024
"""Neighbouring sequences that stay together where shuffling is by blocks."""
BLOCKS_AT_ONCE = 64
"""Blocks that are shuffled among themselves."""


@dataclass(frozen=True)
class Steps:
    """Sequences of a plan that belong into one step, and stay together."""

    size: int
    """As many as ranks where the plan balances them, else 1."""
    window_starts: Int64Array
    """Shape (num_windows + 1,): steps never reach over the end of a window."""

    @cached_property
    def _offsets(self) -> tuple[Int64Array, Int64Array]:
        """Complete steps, and sequences of none, before each window."""
        steps, rest = np.divmod(np.diff(self.window_starts), self.size)
        return offsets_from_lengths(steps), offsets_from_lengths(rest)

    @cached_property
    def num_steps(self) -> int:
        """Complete steps in all windows."""
        return int(self._offsets[0][-1])

    @property
    def firsts(self) -> Int64Array:
        """Shape (num_steps,): the first sequence of each complete step."""
        return self.sequences(np.arange(self.num_steps) * self.size)

    @property
    def rest(self) -> Int64Array:
        """Sequences at the end of a window that make no complete step."""
        return self.sequences(np.arange(self.num_steps * self.size, self.window_starts[-1]))

    def sequences(self, places: Int64Array) -> Int64Array:
        """Shape (n,): what stands at places of all steps one after another, then of the rest."""
        if self.size == 1:
            return places
        steps, rest = self._offsets
        step, within = np.divmod(places, self.size)
        window = np.searchsorted(steps, step, side="right") - 1
        behind = places - self.num_steps * self.size
        window_behind = np.searchsorted(rest, behind, side="right") - 1
        is_rest = behind >= 0
        window = np.where(is_rest, window_behind, window)
        at = np.where(
            is_rest,
            np.diff(steps)[window] * self.size + behind - rest[window],
            (step - steps[window]) * self.size + within,
        )
        found: Int64Array = self.window_starts[window] + at
        return found


def steps_of(plan: Plan) -> Steps:
    """The steps of a plan, in its order."""
    return Steps(plan.rows.group_size, plan.window_starts)


@dataclass(frozen=True)
class Order:
    """The sequence that stands at each place of each epoch."""

    steps: Steps
    seed: int
    shuffle: Shuffle = "global"

    def __call__(self, epoch: int, places: Int64Array) -> Int64Array:
        """Shape (n,): the sequences at places of an epoch."""
        if self.steps.size == 1:
            return self._shuffled(epoch, places)
        num_shuffled = self.steps.num_steps * self.steps.size
        step, within = np.divmod(places, self.steps.size)
        inside = places < num_shuffled
        mixed = places.copy()
        mixed[inside] = self._shuffled(epoch, step[inside]) * self.steps.size + within[inside]
        return self.steps.sequences(mixed)

    @cached_property
    def size(self) -> int:
        """Sequences of an epoch: all, or as many as make whole groups of a step's size."""
        total = int(self.steps.window_starts[-1])
        return total - total % self.steps.size

    def across_epochs(self, first: int, count: int) -> tuple[Int64Array, Int64Array]:
        """Sequences from a place on, epochs one after another, and the epoch of each."""
        parts, epochs = [], []
        while count > 0:
            epoch, place = divmod(first, self.size)
            some = min(count, self.size - place)
            parts.append(self(epoch, np.arange(place, place + some)))
            epochs.append(np.full(some, epoch))
            first, count = first + some, count - some
        if len(parts) == 1:
            return parts[0], epochs[0]
        nothing = np.empty(0, np.int64)
        return np.concatenate([nothing, *parts]), np.concatenate([nothing, *epochs])

    def _shuffled(self, epoch: int, places: Int64Array) -> Int64Array:
        if self.shuffle == "none":
            return places
        count, size = self.steps.num_steps, self.steps.size
        return _permutation(self.shuffle, count, size, self.seed, epoch)(places)


@lru_cache(64)
def _permutation(
    shuffle: Shuffle, count: int, size: int, seed: int, epoch: int
) -> Permutation | BlockPermutation:
    """A permutation of `count` steps of `size` sequences."""
    if shuffle == "global":
        return Permutation(count, seed, epoch)
    return BlockPermutation(count, max(BLOCK // size, 1), BLOCKS_AT_ONCE, seed, epoch)


def shuffled(plan: Plan, seed: int, epoch: int = 0) -> Int64Array:
    """Shape (num_sequences,): the sequence that stands at each place of an epoch."""
    return Order(steps_of(plan), seed)(epoch, np.arange(len(plan)))


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
        VerificationError: the plan is damaged.
    """
    plan.check_offsets()
    counts = np.diff(plan.offsets)
    if key == "depth":
        return counts.astype(np.float64)
    if key == "length":
        return np.add.reduceat(plan.lengths, plan.offsets[:-1], dtype=np.int64) / counts
    if dataset is None:
        raise UserError(f"a curriculum by the column {key!r} needs the dataset")
    if plan.documents.max(initial=0) >= dataset.num_documents:
        raise plan.damaged("it names documents that do not exist")
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
                where=dataset.location,
                why=f"it keeps {', '.join(kept) or 'none'}",
                hint="build the dataset with --keep to add columns",
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
