"""Schedules: the sequences of each step's global batch, which depend only on the step.

An epoch goes through its sequences in its own order. Epochs follow one another without a gap, so a
batch can contain the end of one and the start of the next. If the rows of a plan have several
lengths, each length has its own order, a batch has rows of one length, and the batches of an epoch
are shuffled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.batches import deal as deal_rows
from tokenmill.kernels.permutation import Permutation
from tokenmill.kernels.sequences import sums_of_lengths
from tokenmill.load.steps.order import Order, Shuffle, orders_by_length
from tokenmill.store.plan import Plan

EPOCHS_FOR_EVER = 1 << 40
Count = Annotated[int, Meta(ge=1)]
Ramp = tuple[tuple[Annotated[int, Meta(ge=0)], Count], ...]
"""Points (first step, size), sorted by step: each size holds from its step on."""


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
    possible: tuple[int, ...] | None = None
    """Numbers of the plans that steps like this one take rows from; None: all."""


@dataclass(frozen=True, slots=True)
class Uses:
    """When sequences of a source are in a batch. All arrays have shape (n,)."""

    members: Int64Array
    """Indices of the sequences among those that were asked for."""
    steps: Int64Array
    """-1 for a step to come that is not known: a mixture's depend on all before them."""
    epochs: Int64Array

    @staticmethod
    def joined(parts: Iterable[Uses]) -> Uses:
        """Return several as one, sorted by sequence and step; unknown steps come last."""
        lists = zip(*((each.members, each.steps, each.epochs) for each in parts), strict=True)
        members, steps, epochs = map(np.concatenate, lists)
        order = np.lexsort((epochs, steps.view(np.uint64), members))
        return Uses(members[order], steps[order], epochs[order])


class Schedule(Protocol):
    """The sequences of each step."""

    source_names: Sequence[str] = ()
    """Names of the sources of a mixture."""

    @property
    def source_epochs(self) -> list[int | None]:
        """The epochs after which each source ends; None: never."""
        return [1]

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
    """The size of a global batch in rows or in tokens, constant or as a ramp."""

    rows: Count | Ramp | None = None
    tokens: Count | Ramp | None = None

    @staticmethod
    def of(rows: Any, tokens: Any) -> BatchSize:
        """Return a size in rows or in tokens.

        Raises:
            UserError: it is neither a number nor a ramp, or both are given.
        """
        try:
            size = msgspec.convert({"rows": rows, "tokens": tokens}, BatchSize)
        except msgspec.ValidationError as error:
            raise UserError("invalid size of a global batch", why=str(error)) from error
        if None not in (rows, tokens):
            raise UserError("give one size of a global batch", why="got rows and tokens")
        return size

    @property
    def points(self) -> Ramp:
        """The size as a ramp; a constant size is one point."""
        size = self.rows or self.tokens or 0
        return ((0, size),) if isinstance(size, int) else size

    def as_values(self) -> dict[str, Any]:
        """Return the size as plain values, as states have it."""
        values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return values

    def as_short_values(self) -> dict[str, Any]:
        """Return the size as plain values, as legs have it."""
        return {name: value for name, value in self.as_values().items() if value is not None}

    def ramp_of(self, row_length: int) -> Ramp:
        """Return the number of rows in a global batch as a ramp, for rows of this length."""
        divisor = 1 if self.rows else row_length
        return tuple((step, size // divisor) for step, size in self.points)

    def rows_of(self, row_length: int, step: int = 0) -> int:
        """Return the number of rows in the global batch of a step, for rows of this length."""
        return [rows for first, rows in self.ramp_of(row_length) if first <= step][-1]

    def rows_between(self, first: int, stop: int, row_length: int) -> int:
        """Return the number of rows in all steps from `first` to before `stop`."""
        ramp = self.ramp_of(row_length)
        ends = [*(step for step, _ in ramp[1:]), stop]
        return sum(
            rows * max(min(end, stop) - max(begin, first), 0)
            for (begin, rows), end in zip(ramp, ends, strict=True)
        )

    def steps_within(self, num_rows: int, first: int, row_length: int) -> int:
        """Return how many complete steps from `first` on this many rows fill."""
        ramp, steps = self.ramp_of(row_length), 0
        ends = [*(step for step, _ in ramp[1:]), None]
        for (begin, rows), end in zip(ramp, ends, strict=True):
            begin = max(begin, first)
            fitting = max(num_rows, 0) // rows
            some = fitting if end is None else min(fitting, max(end - begin, 0))
            steps += some
            num_rows -= some * rows
            if end is None or begin + some < end:
                break
        return steps

    def steps_of(self, rows: Int64Array, first: int, row_length: int) -> Int64Array:
        """Return the step of each row, shape (n,), if row 0 is the first of the step `first`."""
        begins = [first, *(step for step, _ in self.points if step > first)]
        before = np.array([self.rows_between(first, begin, row_length) for begin in begins])
        sizes = np.array([self.rows_of(row_length, begin) for begin in begins])
        at = np.searchsorted(before, rows, side="right") - 1
        found: Int64Array = np.array(begins)[at] + (rows - before[at]) // sizes[at]
        return found


@dataclass(frozen=True, slots=True)
class Start:
    """Where a leg of a run begins, and what each of its sources has given before."""

    step: int
    numbers: list[int]
    """Numbers of the sources in the run; the order of each source's rows depends on its number."""
    rows: list[list[int]]
    """Rows of each length that the source has given."""
    tokens: list[int]
    lags: list[int]
    """See `MixtureSchedule`."""

    @staticmethod
    def of_run(num_sources: int) -> Start:
        """Return the start of a run, where no source has given anything."""
        zeros = [0] * num_sources
        return Start(0, [*range(num_sources)], [[]] * num_sources, zeros, zeros)


def seed_of_source(seed: int, number: int) -> int:
    """Return the seed of a source's order: the first source has the order of its plan alone."""
    return seed if number == 0 else xxhash.xxh3_64_intdigest(f"{seed} source {number}".encode())


class OrderOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of a batch, the order of sequences, the rank, and a file of metrics."""

    batch_size: Annotated[
        Count | Ramp | None,
        Meta(description="rows per step on each rank; or points (step, size) of a ramp"),
    ] = None
    global_batch_size: Annotated[
        Count | Ramp | None, Meta(description="rows per step, all ranks; or a ramp")
    ] = None
    tokens_per_batch: Annotated[
        Count | Ramp | None,
        Meta(description="tokens per step on each rank, if row lengths vary; or a ramp"),
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
            UserError: not exactly one size is given, or the points of a ramp are not in order.
        """
        given = (self.batch_size, self.global_batch_size, self.tokens_per_batch)
        if sum(value is not None for value in given) != 1:
            raise UserError(
                "give exactly one batch size",
                why=f"batch_size={given[0]}, global_batch_size={given[1]}, "
                f"tokens_per_batch={given[2]}",
                hint="global_batch_size does not change if the number of ranks does",
            )
        checked_ramp(next(value for value in given if value is not None))
        if self.tokens_per_batch is not None:
            return BatchSize(tokens=self._of_all_ranks(self.tokens_per_batch))
        if self.batch_size is not None:
            return BatchSize(rows=self._of_all_ranks(self.batch_size))
        return BatchSize(rows=self.global_batch_size)

    def _of_all_ranks(self, size: int | Ramp) -> int | Ramp:
        ranks = self.world_size or 1
        if isinstance(size, int):
            return size * ranks
        return tuple((step, each * ranks) for step, each in size)

    def ranks(self) -> tuple[int, int]:
        """Return the rank and the number of ranks: see `known_ranks`."""
        return known_ranks(self.rank, self.world_size)


def checked_ramp(size: int | Ramp, first_step: int = 0) -> int | Ramp:
    """Return a batch size that is valid from a step on.

    Raises:
        UserError: it is a ramp without a size for that step, or its points are not sorted by step.
    """
    if isinstance(size, int):
        return size
    steps = [step for step, _ in size]
    if not steps or steps != sorted(set(steps)) or steps[0] > first_step:
        raise UserError(
            "the points of a batch size must be sorted by step",
            why=f"got {size!r}, for the steps from {first_step} on",
            hint=f"the first point must be at step {first_step} or before it",
        )
    return size


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
    size: BatchSize
    order: Order
    members: Int64Array | None
    """The sequences; None for all sequences of the plan."""
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

    def own(self, sequences: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return the indices of those sequences that are in the series, and their numbers in it."""
        if self.members is None:
            return np.arange(len(sequences)), sequences
        at = np.searchsorted(self.members, sequences).clip(max=len(self.members) - 1)
        found = np.flatnonzero(self.members[at] == sequences)
        return found, at[found]

    def uses(self, sequences: Int64Array, stop: int) -> Uses:
        """Return when sequences are used before the row `stop`, by steps of this series alone."""
        asked, sequences = self.own(sequences)
        found, rows = self.order.rows_of(sequences, self.first_row, stop)
        steps = self.size.steps_of(rows - self.first_row, self.first_step, self.row_length)
        return Uses(asked[found], steps - self.first_step, rows // self.order.size)

    def rows_left(self, epochs: int) -> int:
        """Return the number of sequences that no step uses, after this many epochs."""
        total = int(self.order.steps.window_starts[-1])
        return epochs * total - self.rows_before(self.steps_before(epochs))

    def take(self, steps: int) -> tuple[Int64Array, Int64Array]:
        """Return the sequences of the step after this many, and the epoch of each."""
        count = self.size.rows_of(self.row_length, self.first_step + steps)
        sequences, epochs = self.order.across_epochs(self.rows_before(steps), count)
        return sequences if self.members is None else self.members[sequences], epochs


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

    def identity(self) -> dict[str, Any]:
        return {"shuffle": self._shuffle}

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


STEPS_AT_ONCE = 1 << 16


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


def times_given(
    plan: Plan, order: tuple[int, Shuffle], rows: list[int], sequences: Int64Array
) -> Int64Array:
    """Return how often each sequence is among the first rows of a plan, shape (n,).

    Args:
        plan: the plan.
        order: the seed of its order, and how it is shuffled.
        rows: number of rows of each row length, in ascending order.
        sequences: shape (n,).
    """
    times = np.zeros(len(sequences), np.int64)
    for series, given in zip(_series(plan, *order), rows, strict=True):
        at, own = series.own(sequences)
        epochs, rest = divmod(given, series.order.size)
        places = series.order.places(epochs, own)
        times[at] = (epochs + (places < rest)) * (places < series.order.size)
    return times


@lru_cache(8)
def _series(plan: Plan, seed: int, shuffle: Shuffle) -> list[_Series]:
    return list(_series_of(plan, BatchSize(rows=1), seed, shuffle, Start.of_run(1)))


def _series_of(
    plan: Plan, size: BatchSize, seed: int, shuffle: Shuffle, start: Start
) -> Iterator[_Series]:
    orders = orders_by_length(plan, seed, shuffle)
    given = start.rows[0] or [0] * len(orders)
    for (row_length, order, members), rows in zip(orders, given, strict=True):
        yield _Series(row_length, size, order, members, start.step, rows)


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
