"""What each step trains on: the sequences of its global batch, as a function of the step alone.

Sequences of an epoch follow one another in the epoch's order, and epochs follow one another
without a gap: a batch may hold the end of one and the beginning of the next. Where a plan has
rows of several lengths, each length has its own order, a batch has rows of one length, and the
batches of an epoch are shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import xxhash

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.errors import UserError
from tokenmill.load.rows.reader import plan_row_lengths
from tokenmill.load.steps.curriculum import Curriculum
from tokenmill.load.steps.order import Order, Shuffle, Steps, steps_of
from tokenmill.permutation import Permutation
from tokenmill.records import Int64Array
from tokenmill.store.plan import Plan

EPOCHS_FOR_EVER = 1 << 40


@dataclass(frozen=True, slots=True)
class GlobalBatch:
    """The rows of a step over all ranks, in their canonical order."""

    sources: Int64Array
    """Shape (num_rows,): which plan each row is of; 0 where there is only one."""
    sequences: Int64Array
    """Shape (num_rows,)."""
    epochs: Int64Array
    """Shape (num_rows,): how often each row's plan had been gone through before."""
    row_length: int
    """Tokens of a row, padding included."""
    cut_length: int | None = None
    """Tokens that rows are cut to, as more rows."""


class Schedule(Protocol):
    """Which sequences each step trains on."""

    @property
    def num_steps(self) -> int | None:
        """Complete steps; None where nobody knows, or there is no end."""

    @property
    def rows_left(self) -> int:
        """Sequences at the end that make no complete step, and are not trained on."""

    @property
    def row_counts(self) -> list[int]:
        """How many rows a global batch has: one number, or one for each length of rows."""

    def batch(self, step: int) -> GlobalBatch | None:
        """The global batch of a step, or None behind the last one."""

    def identity(self) -> dict[str, Any]:
        """The settings that the order depends on: plain values, the same where it goes on."""

    def progress(self, step: int) -> dict[str, Any]:
        """How far the order has come before `step`, where the step alone does not say it."""

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        """Go on at `step`, where `progress` was taken."""

    @property
    def revision(self) -> int:
        """Another number once steps may have become others."""
        return 0

    def standing(self) -> object:
        """What is known after the last step that was asked for: for `follow` of a copy."""
        return None

    def follow(self, standing: object) -> None:  # noqa: ARG002
        """Stand where a copy stood."""
        return


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Rows of a global batch, or its tokens."""

    rows: int | None = None
    tokens: int | None = None

    def rows_of(self, row_length: int) -> int:
        """Rows of a global batch whose rows have this length."""
        return self.rows or (self.tokens or 0) // row_length


@dataclass(frozen=True)
class _Series:
    """Sequences with rows of one length, epoch after epoch."""

    row_length: int
    num_rows: int
    """Of a global batch."""
    order: Order
    members: Int64Array | None
    """The sequences, where they are not all of the plan."""

    def steps_before(self, epoch: int) -> int:
        """Complete steps that all epochs before this one make."""
        return epoch * self.order.size // self.num_rows

    def rows_left(self, epochs: int) -> int:
        """Sequences of some epochs that no step takes."""
        total = int(self.order.steps.window_starts[-1])
        return epochs * total - self.steps_before(epochs) * self.num_rows

    def take(self, step: int) -> tuple[Int64Array, Int64Array]:
        """The sequences of a step, and the epoch of each."""
        sequences, epochs = self.order.across_epochs(step * self.num_rows, self.num_rows)
        return sequences if self.members is None else self.members[sequences], epochs


class PlanSchedule(Schedule):
    """The steps of a plan, for a number of epochs.

    Raises:
        UserError: the plan has no sequence, or a batch cannot hold whole steps of a balanced plan.
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
            raise UserError("the plan has no sequence", where=str(plan.folder))
        self._seed, self._shuffle = seed, shuffle
        self._epochs = EPOCHS_FOR_EVER if epochs is None else epochs
        self._series = list(_series_of(plan, size, seed, shuffle))
        group = self._series[0].order.steps.size
        for series in self._series:
            if series.num_rows < 1 or series.num_rows % group:
                raise UserError(
                    "a global batch has at least one row, and whole groups of them",
                    where=str(plan.folder),
                    why=f"it has {series.num_rows} rows of {series.row_length} tokens, "
                    f"and {group} sequences of the plan stay together",
                )

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
        """The epoch of the step's first row, for whoever reads a state: the step says it all."""
        batch = self.batch(step)
        return {"epoch": self._epochs if batch is None else int(batch.epochs[0])}

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        """Nothing to take over: the order is a function of the step."""

    def _steps_before(self, epoch: int) -> int:
        return sum(series.steps_before(epoch) for series in self._series)

    def _series_of_step(self, step: int) -> tuple[_Series, int]:
        """The series that a step takes its rows from, and which of its steps that is."""
        if len(self._series) == 1:
            return self._series[0], step
        low, high = 0, step + 1  # the epoch: the last one before which at most `step` steps lie
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


class CurriculumSchedule(Schedule):
    """The steps of a curriculum, which is one epoch of a plan.

    Raises:
        UserError: it is of another plan, or cuts rows unevenly.
    """

    def __init__(self, plan: Plan, curriculum: Curriculum) -> None:
        if curriculum.plan_id != plan.manifest.plan_id:
            why = f"it was made of {curriculum.plan_id or 'none'}, not {plan.manifest.plan_id}"
            hint = "Curriculum.of_plan(plan, dataset, ...)"
            raise UserError("the curriculum belongs to another plan", why=why, hint=hint)
        self._curriculum = curriculum
        self._row_length = only_row_length(plan)
        for length in curriculum.row_lengths:
            if self._row_length % length:
                why = f"{self._row_length} is not a multiple of {length}"
                raise UserError("rows of a phase cannot be cut evenly", why=why)

    @property
    def num_steps(self) -> int | None:
        return self._curriculum.num_steps

    @property
    def row_counts(self) -> list[int]:
        """How many sequences of the plan a step has, before they are cut."""
        return [self._curriculum.batch_size]

    @property
    def rows_left(self) -> int:
        return self._curriculum.num_sequences % self._curriculum.batch_size

    def batch(self, step: int) -> GlobalBatch | None:
        if step >= self._curriculum.num_steps:
            return None
        sequences = self._curriculum.batch(step)
        zeros = np.zeros_like(sequences)
        cut = self._curriculum.row_length(step)
        return GlobalBatch(zeros, sequences, zeros, self._row_length, cut)

    def identity(self) -> dict[str, Any]:
        """Nothing: the curriculum compares its own state."""
        return {}

    def progress(self, step: int) -> dict[str, Any]:  # noqa: ARG002 - phases know their steps
        """The phases; with the step, they say every batch."""
        return {"curriculum": self._curriculum.state_dict()}

    def resume(self, step: int, progress: dict[str, Any]) -> None:  # noqa: ARG002
        """Take over the phases of a state."""
        self._curriculum.load_state_dict(progress.get("curriculum", {}))

    @property
    def revision(self) -> int:
        return self._curriculum.revision


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
    """Tokens of each row of a plan, padding included.

    Raises:
        UserError: the plan has rows of several lengths.
    """
    row_length, *others = plan.rows.row_lengths
    if others:
        raise UserError(
            "rows of this plan have several lengths",
            where=str(plan.folder),
            hint="curricula and mixtures need rows of one length: tokenmill pack makes such plans",
        )
    return row_length
