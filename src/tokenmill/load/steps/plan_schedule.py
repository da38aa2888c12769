"""The steps of a plan.

An epoch goes through its sequences in its own order. Epochs follow one another without a gap, so a
batch can contain the end of one and the start of the next. If the rows of a plan have several
lengths, each length has its own order, a batch has rows of one length, and the batches of an epoch
are shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.permutation import Permutation
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.order import Order, Shuffle, check_rows, orders_by_length
from tokenmill.load.steps.schedule import (
    GlobalBatch,
    OrderIdentity,
    Schedule,
    Start,
    Uses,
    seed_of_source,
)
from tokenmill.store.plan import Plan

EPOCHS_FOR_EVER = 1 << 40
STEPS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class _Series:
    """The sequences with rows of one length, over all epochs."""

    row_length: int
    size: BatchSize
    order: Order
    first_step: int
    first_row: int
    """Rows that were given before the first step."""

    @property
    def num_rows(self) -> int:
        """Number of rows in the first global batch, and in all others unless there is a ramp."""
        return self.size.rows_of(self.row_length, self.first_step)

    def steps_before(self, epoch: int) -> int:
        """Return the number of complete steps in all epochs before this one."""
        rows = epoch * self.order.size - self.first_row
        return self.size.steps_within(rows, self.first_step, self.row_length)

    def rows_before(self, steps: int) -> int:
        """Return the number of rows that were given before this many steps were taken."""
        stop = self.first_step + steps
        return self.first_row + self.size.rows_between(self.first_step, stop, self.row_length)

    def uses(self, sequences: Int64Array, stop: int) -> Uses:
        """Return when sequences are used before the row `stop`, by steps of this series alone."""
        members, rows = self.order.rows_of(sequences, self.first_row, stop)
        steps = self.size.steps_of(rows - self.first_row, self.first_step, self.row_length)
        return Uses(members, steps - self.first_step, rows // self.order.size)

    def rows_left(self, epochs: int) -> int:
        """Return the number of sequences that no step uses, after this many epochs."""
        total = int(self.order.steps.window_starts[-1])
        return epochs * total - self.rows_before(self.steps_before(epochs))

    def take(self, steps: int) -> tuple[Int64Array, Int64Array]:
        """Return the sequences of the step after this many, and the epoch of each."""
        count = self.size.rows_of(self.row_length, self.first_step + steps)
        return self.order.across_epochs(self.rows_before(steps), count)


class PlanSchedule(Schedule):
    """The steps of a plan, for a number of epochs, or those of one leg of a run.

    Raises:
        UserError: the plan has no sequences, the batch size is not a multiple of the ranks of a
            balanced plan, or there is a ramp and rows have several lengths.
    """

    def __init__(
        self,
        plan: Plan,
        size: BatchSize,
        *,
        seed: int = 0,
        shuffle: Shuffle = "global",
        epochs: int | None = 1,
        start: Start | None = None,
    ) -> None:
        if not len(plan):
            raise UserError("the plan has no sequences", where=str(plan.folder))
        start = start or Start.of_run(1)
        self._seed, self._shuffle = seed_of_source(seed, start.numbers[0]), shuffle
        self._epochs = EPOCHS_FOR_EVER if epochs is None else epochs
        self._first_step = start.step
        self._series = list(_series_of(plan, size, self._seed, shuffle, start))
        _check_sizes(self._series, size, str(plan.folder))

    @property
    def source_epochs(self) -> list[int | None]:
        return [None if self._epochs == EPOCHS_FOR_EVER else self._epochs]

    @property
    def num_steps(self) -> int | None:
        if self._epochs == EPOCHS_FOR_EVER:
            return None
        return self._first_step + self._steps_before(self._epochs)

    @property
    def row_counts(self) -> list[int]:
        return [rows for each in self._series for _, rows in each.size.ramp_of(each.row_length)]

    @property
    def rows_left(self) -> int:
        if self._epochs == EPOCHS_FOR_EVER:
            return 0
        return sum(series.rows_left(self._epochs) for series in self._series)

    def batch(self, step: int) -> GlobalBatch | None:
        steps = step - self._first_step
        if steps >= self._steps_before(self._epochs):
            return None
        series, number = self._series_of_step(steps)
        sequences, epochs = series.take(number)
        return GlobalBatch(np.zeros_like(sequences), sequences, epochs, series.row_length)

    def identity(self) -> OrderIdentity:
        return OrderIdentity(shuffle=self._shuffle)

    def progress(self, step: int) -> dict[str, Any]:
        """Return the epoch of the step's first row, and the rows of each length given before it."""
        batch = self.batch(step)
        epoch = self._epochs if batch is None else int(batch.epochs[0])
        return {"epoch": epoch, "rows": self.rows_before(step)}

    def rows_before(self, step: int) -> list[int]:
        """Return the rows of each row length, in ascending order, given before a step."""
        steps = step - self._first_step
        if steps >= self._steps_before(self._epochs):
            counts = [series.steps_before(self._epochs) for series in self._series]
        elif len(self._series) == 1:
            counts = [steps]
        else:
            firsts, arranged, within = self._epoch_of_step(steps)
            counts = (np.array(firsts) + arranged.counts_before(within)).tolist()
        return [
            series.rows_before(count) for series, count in zip(self._series, counts, strict=True)
        ]

    def uses(
        self,
        number: int,  # noqa: ARG002
        sequences: Int64Array,
        stop: int,
        *,
        whole_epoch: bool = False,
    ) -> Uses:
        """Return when sequences of the only source, number 0, are used before the step `stop`.

        With `whole_epoch`, also those later in the epoch of each row length.
        """
        parts = []
        for place, given in enumerate(self.rows_before(stop)):
            series = self._series[place]
            size = series.order.size
            end = (given // size + 1) * size if whole_epoch else given
            end = min(end, series.rows_before(series.steps_before(self._epochs)))
            found = series.uses(sequences, end)
            parts.append(replace(found, steps=self._steps_of(place, found.steps)))
        return Uses.joined(parts)

    def _steps_of(self, number: int, own: Int64Array) -> Int64Array:
        """Return the steps of the schedule that are steps of one of its series, shape (n,)."""
        series = self._series[number]
        if len(self._series) == 1 or not len(own):
            return self._first_step + own
        steps, last = np.empty_like(own), own.max()
        epoch = series.first_row // series.order.size
        while series.steps_before(epoch) <= last:
            firsts, arranged = self._epoch(epoch)
            places = np.flatnonzero(arranged.series == number) + sum(firsts)
            inside = (own >= firsts[number]) & (own < firsts[number] + len(places))
            steps[inside] = self._first_step + places[own[inside] - firsts[number]]
            epoch += 1
        return steps

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        """Do nothing: the order depends only on the step.

        Raises:
            UserError: rows have several lengths, and the state is from a version with another order
                of them, which did not save the rows that were given.
        """
        if len(self._series) > 1 and step and "rows" not in progress:
            why = "an earlier version, in which rows of several lengths had another order, saved it"
            hint = "go on with that version, or begin with a new epoch"
            raise UserError("the state does not fit to this order", why=why, hint=hint)

    def epochs(self, step: int) -> dict[str, float]:
        if len(self._series) == 1:
            series = self._series[0]
            return {"epoch": series.rows_before(step - self._first_step) / series.order.size}
        before = sum(each.first_row / each.num_rows for each in self._series)
        steps_of_epoch = sum(each.order.size / each.num_rows for each in self._series)
        return {"epoch": (before + step - self._first_step) / steps_of_epoch}

    def _steps_before(self, epoch: int) -> int:
        return sum(series.steps_before(epoch) for series in self._series)

    def _series_of_step(self, steps: int) -> tuple[_Series, int]:
        """Return the series of the step after this many, and how many of its own are before it."""
        if len(self._series) == 1:
            return self._series[0], steps
        firsts, arranged, within = self._epoch_of_step(steps)
        number = int(arranged.series[within])
        return self._series[number], firsts[number] + int(arranged.counts_before(within)[number])

    def _epoch_of_step(self, steps: int) -> tuple[list[int], Arrangement, int]:
        """Return the epoch of the step after this many.

        As the steps of each series in all epochs before it, the order of series in the epoch, and
        the steps of the epoch that are before the step.
        """
        low, high = 0, steps + 1  # search the last epoch with at most `steps` steps before it
        while not self._steps_before(high) > steps:
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._steps_before(middle) <= steps else (low, middle)
        firsts, arranged = self._epoch(low)
        return firsts, arranged, steps - sum(firsts)

    def _epoch(self, epoch: int) -> tuple[list[int], Arrangement]:
        """Return the steps of each series before an epoch, and the order of series in it."""
        firsts = [series.steps_before(epoch) for series in self._series]
        counts = tuple(
            series.steps_before(epoch + 1) - first
            for series, first in zip(self._series, firsts, strict=True)
        )
        return firsts, arrangement(counts, self._seed, epoch, self._shuffle != "none")


@dataclass(frozen=True)
class Arrangement:
    """Which series each step of an epoch takes its rows from. A series gives its rows in order."""

    series: npt.NDArray[np.uint16]
    """Shape (num_steps,)."""
    counts: Int64Array
    """Steps of each series before every `STEPS_AT_ONCE` steps, shape (num_parts, num_series)."""

    def counts_before(self, step: int) -> Int64Array:
        """Return the steps of each series before a step of the epoch, shape (num_series,)."""
        part, num_series = step // STEPS_AT_ONCE, self.counts.shape[1]
        some = self.series[part * STEPS_AT_ONCE : step]
        total: Int64Array = self.counts[part] + np.bincount(some, minlength=num_series)
        return total


@lru_cache(8)
def arrangement(counts: tuple[int, ...], seed: int, epoch: int, shuffles: bool) -> Arrangement:
    """Return the order of the series in an epoch, of which each has this many steps."""
    offsets = offsets_from_lengths(counts)
    num_steps = int(offsets[-1])
    series = np.empty(num_steps, np.uint16)
    before = [np.zeros(len(counts), np.int64)]
    for first in range(0, num_steps, STEPS_AT_ONCE):
        places = np.arange(first, min(first + STEPS_AT_ONCE, num_steps))
        if shuffles:
            places = Permutation(num_steps, seed, epoch)(places)
        found = np.searchsorted(offsets, places, side="right") - 1
        series[first : first + len(found)] = found
        before.append(before[-1] + np.bincount(found, minlength=len(counts)))
    return Arrangement(series, np.stack(before))


def _series_of(
    plan: Plan, size: BatchSize, seed: int, shuffle: Shuffle, start: Start
) -> Iterator[_Series]:
    orders = orders_by_length(plan, seed, shuffle)
    given = start.given[0].rows or [0] * len(orders)
    check_rows(given, orders, plan)
    for (row_length, order), rows in zip(orders.items(), given, strict=True):
        yield _Series(row_length, size, order, start.step, rows)


def _check_sizes(series: Sequence[_Series], size: BatchSize, where: str) -> None:
    """Raise a UserError if a plan cannot have batches of this size."""
    if len(size.points) > 1 and len(series) > 1:
        lengths = ", ".join(str(each.row_length) for each in series)
        why = f"the rows of the plan have several lengths: {lengths}"
        hint = "use one size, and change it during the run: tokenmill amend"
        raise UserError("the batch size cannot be a ramp", where=where, why=why, hint=hint)
    group = series[0].order.steps.size
    for each in series:
        for _, num_rows in size.ramp_of(each.row_length):
            if num_rows < 1 or num_rows % group:
                what = "the global batch is smaller than a row"
                why = f"it has {num_rows} rows of {each.row_length} tokens"
                if num_rows > 0:
                    what = f"the rows of a global batch must be a multiple of {group}"
                    why += f", and {group} sequences of the plan stay together"
                raise UserError(what, where=where, why=why)
