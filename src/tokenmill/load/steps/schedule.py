"""Schedules: the sequences of each step's global batch, which depend only on the step.

An epoch goes through its sequences in its own order. Epochs follow one another without a gap, so a
batch can contain the end of one and the start of the next. If the rows of a plan have several
lengths, each length has its own order, a batch has rows of one length, and the batches of an epoch
are shuffled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import xxhash
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.batches import deal as deal_rows
from tokenmill.kernels.permutation import Permutation
from tokenmill.kernels.sequences import sums_of_lengths
from tokenmill.load.rows.reader import plan_row_lengths
from tokenmill.load.steps.order import Order, Shuffle, Steps, steps_of
from tokenmill.store.plan import Plan

EPOCHS_FOR_EVER = 1 << 40
Count = Annotated[int, Meta(ge=1)]


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """The rows of a step over all ranks, in an order that does not depend on the ranks."""

    sources: Int64Array
    """Plan of each row, shape (num_rows,); 0 if there is only one."""
    sequences: Int64Array
    """Shape (num_rows,)."""
    epochs: Int64Array
    """Epoch of each row's plan, from 0, shape (num_rows,)."""
    row_length: int
    """Tokens in a row, including padding."""
    cut_length: int | None = None
    """Tokens in a row after rows are cut into several; None if they are not cut."""


class Schedule(Protocol):
    """The sequences of each step."""

    source_names: Sequence[str] = ()
    """Names of the sources of a mixture."""

    @property
    def num_steps(self) -> int | None:
        """Number of complete steps; None if it is unknown or there is no end."""

    @property
    def rows_left(self) -> int:
        """Sequences at the end that do not fill a step and are skipped."""

    @property
    def row_counts(self) -> list[int]:
        """Number of rows in a global batch, for each row length."""

    def batch(self, step: int) -> GlobalBatch | None:
        """Return the global batch of a step, or None after the last step."""

    def identity(self) -> dict[str, Any]:
        """Return the settings that the order depends on. A state can only be resumed with them."""

    def progress(self, step: int) -> dict[str, Any]:
        """Return the progress before `step` that does not follow from the step alone."""

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        """Resume at `step`, from its `progress`."""

    def epochs(self, step: int) -> dict[str, float]:
        """Return the passes over the rows before a step, and over those of each named source."""

    @property
    def revision(self) -> int:
        """A number that changes when the batches of steps may have changed."""
        return 0

    def standing(self) -> object:
        """Return the state after the last computed step, for `follow`."""
        return None

    def follow(self, standing: object) -> None:  # noqa: ARG002
        """Continue from the `standing` of a copy."""
        return


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The size of a global batch, in rows or in tokens."""

    rows: int | None = None
    tokens: int | None = None

    def rows_of(self, row_length: int) -> int:
        """Return the number of rows in a global batch, for rows of this length."""
        return self.rows or (self.tokens or 0) // row_length


class OrderOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of a batch, the order of sequences, the rank, and a file of metrics."""

    batch_size: Annotated[Count | None, Meta(description="rows per step on each rank")] = None
    global_batch_size: Annotated[Count | None, Meta(description="rows per step, all ranks")] = None
    tokens_per_batch: Annotated[
        Count | None, Meta(description="tokens per step on each rank, if row lengths vary")
    ] = None
    rank: Annotated[int, Meta(ge=0)] | None = None
    world_size: Count | None = None
    seed: Annotated[int, Meta(ge=0)] = 0
    shuffle: Annotated[
        Shuffle, Meta(description="shuffle the whole epoch, within blocks, or not at all")
    ] = "global"
    epochs: Annotated[Count | None, Meta(description="None: repeat without end")] = 1
    restart: Annotated[
        bool, Meta(description="start each pass at the first step, as for validation")
    ] = False
    even_attention: Annotated[
        bool, Meta(description="deal rows so that ranks have similar attention costs")
    ] = True
    metrics: Annotated[
        str | None, Meta(description="file of metrics for Prometheus; each rank has its own")
    ] = None

    def size(self) -> BatchSize:
        """Return the size of a global batch, in rows or tokens.

        Raises:
            UserError: not exactly one size is given.
        """
        given = (self.batch_size, self.global_batch_size, self.tokens_per_batch)
        if sum(value is not None for value in given) != 1:
            raise UserError(
                "give exactly one batch size",
                why=f"batch_size={given[0]}, global_batch_size={given[1]}, "
                f"tokens_per_batch={given[2]}",
                hint="global_batch_size does not change if the number of ranks does",
            )
        if self.tokens_per_batch is not None:
            return BatchSize(tokens=self.tokens_per_batch * (self.world_size or 1))
        rows = (self.batch_size or 0) * (self.world_size or 1)
        return BatchSize(rows=self.global_batch_size or rows)

    def ranks(self) -> tuple[int, int]:
        """Return the rank and the number of ranks: see `known_ranks`."""
        return known_ranks(self.rank, self.world_size)


def known_ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Return this process's rank and the number of ranks: the given ones, or 0 of 1.

    Raises:
        UserError: several processes run and neither is given, or several ranks have one only.
    """
    processes = os.environ.get("WORLD_SIZE", "1")
    if world_size is None and processes.isdecimal() and int(processes) > 1:
        raise UserError(
            "rank and world_size are missing",
            why=f"WORLD_SIZE is {processes}; without them, all processes train on the same rows",
            hint="pass the rank and world_size of data parallelism, or world_size=1",
        )
    if rank is None and (world_size or 1) > 1:
        raise UserError(
            "rank is missing",
            why=f"world_size is {world_size}; without a rank, all ranks train on the same rows",
            hint="pass the rank of this process, for example rank=torch.distributed.get_rank()",
        )
    return rank or 0, world_size or 1


@dataclass(frozen=True)
class _Series:
    """The sequences with rows of one length, over all epochs."""

    row_length: int
    num_rows: int
    """Number of rows in a global batch."""
    order: Order
    members: Int64Array | None
    """The sequences; None for all sequences of the plan."""

    def steps_before(self, epoch: int) -> int:
        """Return the number of complete steps in all epochs before this one."""
        return epoch * self.order.size // self.num_rows

    def rows_left(self, epochs: int) -> int:
        """Return the number of sequences that no step uses, after this many epochs."""
        total = int(self.order.steps.window_starts[-1])
        return epochs * total - self.steps_before(epochs) * self.num_rows

    def take(self, step: int) -> tuple[Int64Array, Int64Array]:
        """Return the sequences of a step, and the epoch of each."""
        sequences, epochs = self.order.across_epochs(step * self.num_rows, self.num_rows)
        return sequences if self.members is None else self.members[sequences], epochs


class PlanSchedule(Schedule):
    """The steps of a plan, for a number of epochs.

    Raises:
        UserError: the plan has no sequences, or the batch size is not a multiple of the ranks of a
            balanced plan.
    """

    def __init__(
        self,
        plan: Plan,
        size: BatchSize,
        *,
        seed: int = 0,
        shuffle: Shuffle = "global",
        epochs: int | None = 1,
    ) -> None:
        if not len(plan):
            raise UserError("the plan has no sequences", where=str(plan.folder))
        self._seed, self._shuffle = seed, shuffle
        self._epochs = EPOCHS_FOR_EVER if epochs is None else epochs
        self._series = list(_series_of(plan, size, seed, shuffle))
        group = self._series[0].order.steps.size
        for series in self._series:
            if series.num_rows < 1 or series.num_rows % group:
                what = "the global batch is smaller than a row"
                why = f"it has {series.num_rows} rows of {series.row_length} tokens"
                if series.num_rows > 0:
                    what = f"the rows of a global batch must be a multiple of {group}"
                    why += f", and {group} sequences of the plan stay together"
                raise UserError(what, where=str(plan.folder), why=why)

    @property
    def num_steps(self) -> int | None:
        return None if self._epochs == EPOCHS_FOR_EVER else self._steps_before(self._epochs)

    @property
    def row_counts(self) -> list[int]:
        return [series.num_rows for series in self._series]

    @property
    def rows_left(self) -> int:
        if self._epochs == EPOCHS_FOR_EVER:
            return 0
        return sum(series.rows_left(self._epochs) for series in self._series)

    def batch(self, step: int) -> GlobalBatch | None:
        if step >= self._steps_before(self._epochs):
            return None
        series, number = self._series_of_step(step)
        sequences, epochs = series.take(number)
        return GlobalBatch(np.zeros_like(sequences), sequences, epochs, series.row_length)

    def identity(self) -> dict[str, Any]:
        return {"shuffle": self._shuffle}

    def progress(self, step: int) -> dict[str, Any]:
        """Return the epoch of the step's first row, for people who read a state."""
        batch = self.batch(step)
        return {"epoch": self._epochs if batch is None else int(batch.epochs[0])}

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        """Do nothing: the order depends only on the step."""

    def epochs(self, step: int) -> dict[str, float]:
        return {"epoch": step / sum(each.order.size / each.num_rows for each in self._series)}

    def _steps_before(self, epoch: int) -> int:
        return sum(series.steps_before(epoch) for series in self._series)

    def _series_of_step(self, step: int) -> tuple[_Series, int]:
        """Return the series that a step takes its rows from, and the step within the series."""
        if len(self._series) == 1:
            return self._series[0], step
        low, high = 0, step + 1  # search the last epoch with at most `step` steps before it
        while not self._steps_before(high) > step:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._steps_before(middle) <= step else (low, middle)
        firsts = [series.steps_before(low) for series in self._series]
        counts = [
            series.steps_before(low + 1) - first
            for series, first in zip(self._series, firsts, strict=True)
        ]
        offsets = offsets_from_lengths(counts)
        place = step - sum(firsts)
        if self._shuffle != "none":
            place = int(Permutation(int(offsets[-1]), self._seed, low)([place])[0])
        number = int(np.searchsorted(offsets, place, side="right")) - 1
        return self._series[number], firsts[number] + place - int(offsets[number])


def _series_of(plan: Plan, size: BatchSize, seed: int, shuffle: Shuffle) -> list[_Series]:
    if len(plan.rows.row_lengths) == 1:
        row_length = only_row_length(plan)
        order = Order(steps_of(plan), seed, shuffle)
        return [_Series(row_length, size.rows_of(row_length), order, None)]
    lengths = plan_row_lengths(plan)
    series = []
    for row_length in np.unique(lengths).tolist():
        members = np.flatnonzero(lengths == row_length)
        own_seed = xxhash.xxh3_64_intdigest(f"{seed} {row_length}".encode())
        order = Order(Steps(1, np.array([0, len(members)])), own_seed, shuffle)
        series.append(_Series(row_length, size.rows_of(row_length), order, members))
    return series


def only_row_length(plan: Plan) -> int:
    """Return the length of a plan's rows in tokens, including padding.

    Raises:
        UserError: the rows have several lengths.
    """
    row_length, *others = plan.rows.row_lengths
    if others:
        raise UserError(
            "the rows of the plan have several lengths",
            where=str(plan.folder),
            hint="curricula and mixtures need rows of one length: pack with another strategy",
        )
    return row_length


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
    ranks = deal_rows(costs, np.argsort(-costs, kind="stable"), world_size)
    return np.argsort(ranks, kind="stable").reshape(world_size, -1)
