"""The order of sequences in training: shuffled, or shuffled within bands of a key.

The order depends only on the plan, a seed and an epoch, and is computed for any positions. If a
plan balances ranks, the sequences of a step stay together: groups of them are shuffled or sorted.
Sequences at the end of a window that do not fill a group come last.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import xxhash

from tokenmill.core.errors import UserError
from tokenmill.core.records import FloatArray, Int64Array
from tokenmill.core.values import counted
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.permutation import BlockPermutation, Permutation
from tokenmill.load.rows.reader import plan_row_lengths
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

Shuffle = Literal["global", "blocks", "none"]

BLOCK = 1024
"""Consecutive sequences in a block, if blocks are shuffled."""
BLOCKS_AT_ONCE = 64
"""Number of blocks that are shuffled together."""


@dataclass(frozen=True)
class Steps:
    """The groups of sequences of a plan that stay together in one step."""

    size: int
    """Sequences in a group: the number of ranks if the plan balances them, else 1."""
    window_starts: Int64Array
    """First sequence of each window, shape (num_windows + 1,). Groups do not span windows."""

    @cached_property
    def _offsets(self) -> tuple[Int64Array, Int64Array]:
        """Number of complete groups, and of sequences outside groups, before each window."""
        steps, rest = np.divmod(np.diff(self.window_starts), self.size)
        return offsets_from_lengths(steps), offsets_from_lengths(rest)

    @cached_property
    def num_steps(self) -> int:
        """Number of complete groups."""
        return int(self._offsets[0][-1])

    @property
    def rest(self) -> Int64Array:
        """Sequences at the end of a window that do not fill a group."""
        return self.sequences(np.arange(self.num_steps * self.size, self.window_starts[-1]))

    def sequences(self, places: Int64Array) -> Int64Array:
        """Return the sequences at positions: first those of all groups, then the rest."""
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

    def places(self, sequences: Int64Array) -> Int64Array:
        """Return the positions of sequences: the inverse of `sequences`."""
        if self.size == 1:
            return sequences
        steps, rest = self._offsets
        window = np.searchsorted(self.window_starts, sequences, side="right") - 1
        at = sequences - self.window_starts[window]
        behind = at - np.diff(steps)[window] * self.size
        in_rest = self.num_steps * self.size + rest[window] + behind
        found: Int64Array = np.where(behind >= 0, in_rest, steps[window] * self.size + at)
        return found


def steps_of(plan: Plan) -> Steps:
    """Return the groups of a plan, in its order."""
    return Steps(plan.rows.group_size, plan.window_starts)


@dataclass(frozen=True)
class Order:
    """The order of sequences in each epoch: of all that a plan has, or of some."""

    steps: Steps
    seed: int
    shuffle: Shuffle = "global"
    members: Int64Array | None = None
    """Some sequences of the plan, ascending, which `steps` counts through; None: all."""

    def __call__(self, epoch: int, places: Int64Array) -> Int64Array:
        """Return the sequences at positions of an epoch, shape (n,)."""
        if self.steps.size == 1:
            found = self._shuffled(epoch, places)
            return found if self.members is None else self.members[found]
        num_shuffled = self.steps.num_steps * self.steps.size
        step, within = np.divmod(places, self.steps.size)
        inside = places < num_shuffled
        mixed = places.copy()
        mixed[inside] = self._shuffled(epoch, step[inside]) * self.steps.size + within[inside]
        return self.steps.sequences(mixed)

    def places(self, epoch: int, sequences: Int64Array) -> Int64Array:
        """Return the positions of sequences in an epoch, shape (n,); from `size` on, not given."""
        if self.members is not None:
            at = np.searchsorted(self.members, sequences).clip(max=self.size - 1)
            sequences = np.where(self.members[at] == sequences, at, self.size)
        places = self.steps.places(sequences)
        if self.shuffle == "none":
            return places
        step, within = np.divmod(places, self.steps.size)
        inside = step < self.steps.num_steps
        shuffled = self._permutation(epoch).places(step[inside])
        found = places.copy()
        found[inside] = shuffled * self.steps.size + within[inside]
        return found

    def rows_of(
        self, sequences: Int64Array, first: int, stop: int
    ) -> tuple[Int64Array, Int64Array]:
        """Find sequences among rows [first, stop), which are counted over all epochs.

        Returns the index of each sequence found in `sequences`, and its row, both of shape (n,).
        """
        members, rows = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for epoch in range(first // self.size, -(-stop // self.size)):
            places = self.places(epoch, sequences)
            inside = np.flatnonzero(places < self.size)
            found = epoch * self.size + places[inside]
            within = (found >= first) & (found < stop)
            members.append(inside[within])
            rows.append(found[within])
        return np.concatenate(members), np.concatenate(rows)

    @cached_property
    def size(self) -> int:
        """Number of sequences in an epoch: all, or those in complete groups."""
        total = int(self.steps.window_starts[-1])
        return total - total % self.steps.size

    def across_epochs(self, first: int, count: int) -> tuple[Int64Array, Int64Array]:
        """Return `count` sequences from a position on, across epochs, and the epoch of each."""
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
        return places if self.shuffle == "none" else self._permutation(epoch)(places)

    def _permutation(self, epoch: int) -> Permutation | BlockPermutation:
        steps = self.steps
        return _permutation(self.shuffle, steps.num_steps, steps.size, self.seed, epoch)


@lru_cache(64)
def _permutation(
    shuffle: Shuffle, count: int, size: int, seed: int, epoch: int
) -> Permutation | BlockPermutation:
    """Return a permutation of `count` groups of `size` sequences."""
    if shuffle == "global":
        return Permutation(count, seed, epoch)
    return BlockPermutation(count, max(BLOCK // size, 1), BLOCKS_AT_ONCE, seed, epoch)


def orders_by_length(plan: Plan, seed: int, shuffle: Shuffle) -> dict[int, Order]:
    """Return the order of the sequences with rows of each length, by this length, ascending."""
    if len(plan.rows.row_lengths) == 1:
        return {plan.rows.row_lengths[0]: Order(steps_of(plan), seed, shuffle)}
    lengths = plan_row_lengths(plan)
    orders: dict[int, Order] = {}
    for row_length in np.unique(lengths).tolist():
        members = np.flatnonzero(lengths == row_length)
        own_seed = xxhash.xxh3_64_intdigest(f"{seed} {row_length}".encode())
        steps = Steps(1, np.array([0, len(members)]))
        orders[row_length] = Order(steps, own_seed, shuffle, members)
    return orders


def check_rows(rows: Sequence[int], orders: Sized, plan: Plan) -> None:
    """Raise a UserError if a state does not give a number of rows for each order of a plan."""
    if len(rows) != len(orders):
        why = f"it gives the rows of {counted(len(rows), 'length')}; the plan has {len(orders)}"
        raise UserError("not the state of a loader", where=str(plan.folder), why=why)


def shuffled(plan: Plan, seed: int, epoch: int = 0) -> Int64Array:
    """Return the shuffled sequences of an epoch, shape (num_sequences,)."""
    return Order(steps_of(plan), seed)(epoch, np.arange(len(plan)))


def banded(
    order: Int64Array, keys: FloatArray, bands: int, steps: Steps | None = None
) -> Int64Array:
    """Return `order` sorted by key into `bands` bands of equal size; bands keep their order.

    `keys` has shape (num_sequences,). Sequences with similar keys are trained on at similar steps,
    but a batch still mixes sequences. Groups of `steps` stay together and are sorted by their mean
    key; sequences outside groups come last.
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
    """Return the value of a sort key for each sequence, shape (num_sequences,).

    "length" is the mean length of a sequence's segments in tokens, and "depth" is their number. Any
    other key is the mean of a column of the documents table over the segments' documents.

    Raises:
        UserError: the column does not exist, or does not contain numbers.
        VerificationError: the plan is damaged.
    """
    plan.check_offsets()
    counts = np.diff(plan.offsets)
    if key == "depth":
        return counts.astype(np.float64)
    if key == "length":
        return np.add.reduceat(plan.lengths, plan.offsets[:-1], dtype=np.int64) / counts
    if dataset is None:
        raise UserError(f"to sort by the column {key!r}, a curriculum needs the dataset")
    if plan.documents.max(initial=0) >= len(dataset.document_numbers):
        raise plan.damaged("it names documents that do not exist")
    values = _column(dataset, key)[plan.documents]
    means: FloatArray = np.add.reduceat(values, plan.offsets[:-1]) / counts
    return means


def _column(dataset: Dataset, name: str) -> FloatArray:
    """Return a kept column as numbers, shape (num_documents,); 0 for what a view leaves out."""
    import pyarrow as pa
    import pyarrow.compute as pc

    name = name.removeprefix("column.")
    parts = []
    for shard in dataset.shards:
        values = np.zeros(shard.entry.documents)
        parts.append(values)
        if not shard.num_documents:
            continue
        table = shard.documents()
        if f"column.{name}" not in table.column_names:
            kept = [each.removeprefix("column.") for each in table.column_names if "." in each]
            raise UserError(
                f"the documents table has no column {name!r}",
                where=dataset.location,
                why=f"it has {', '.join(kept)}" if kept else "it keeps no fields of the records",
                hint=f"build the dataset with --keep {name}",
            )
        try:
            chosen = table.column(f"column.{name}").take(shard.chosen)
            numbers = pc.cast(chosen, pa.float64())
        except pa.ArrowInvalid as error:
            why = str(error)
            raise UserError(f"the column {name!r} does not contain numbers", why=why) from error
        values[shard.chosen] = numbers.to_numpy()  # missing values become NaN
        shard.release()
        if gaps := int((~np.isfinite(values)).sum()):
            why = f"{gaps} documents of a shard have none"
            raise UserError(f"the column {name!r} lacks finite values", why=why)
    result: FloatArray = np.concatenate(parts)
    return result
