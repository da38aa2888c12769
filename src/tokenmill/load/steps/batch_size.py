"""The size of a global batch, and the options of order and ranks."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.steps.order import Shuffle

Count = Annotated[int, Meta(ge=1)]
Ramp = tuple[tuple[Annotated[int, Meta(ge=0)], Count], ...]
"""Points (first step, size), sorted by step: each size holds from its step on."""


class BatchSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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
        check_ramp(next(value for value in given if value is not None))
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


def check_ramp(size: int | Ramp) -> None:
    """Check that a batch size is valid from step 0 on.

    Raises:
        UserError: it is a ramp without a size for step 0, or its points are not sorted by step.
    """
    points = ((0, size),) if isinstance(size, int) else size
    steps = [step for step, _ in points]
    if not steps or steps != sorted(set(steps)) or steps[0]:
        raise UserError(
            "the points of a batch size must be sorted by step",
            why=f"got {size!r}",
            hint="the first point must be at step 0, also if the run is amended later",
        )
    if any(number >= 1 << 62 for point in points for number in point):
        raise UserError("the size of a global batch is too large", why=f"got {size!r}")


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
