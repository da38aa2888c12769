"""Schedules: the sequences of each step's global batch, which depend only on the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
import xxhash
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.kernels.batches import deal as deal_rows
from tokenmill.kernels.sequences import sums_of_lengths
from tokenmill.load.steps.order import Shuffle
from tokenmill.store.plan import Plan

Count = Annotated[int, Meta(ge=0, lt=1 << 62)]


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


class OrderIdentity(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The settings that an order depends on. A state can only be resumed with them.

    A plan alone has only `shuffle`, and a curriculum, which checks its own state, has none.
    """

    shuffle: Shuffle | None = None
    when_one_ends: Literal["stop", "go on"] | None = None
    shares: list[float | list[tuple[Annotated[int, Meta(ge=0)], float]]] = []
    """Share of each source, or points (step, share)."""
    tokens: list[int | None] = []
    """Tokens after which each source ends. Empty: none does."""

    @staticmethod
    def of_mixture(
        shuffle: Shuffle,
        when_one_ends: Literal["stop", "go on"],
        points: Sequence[list[tuple[int, float]]],
        tokens: Sequence[int | None],
    ) -> OrderIdentity:
        """Return the settings of a mixture, of which each share is given as points."""
        shares = [each[0][1] if len(each) == 1 else each for each in points]
        limits = [None if each is None else int(each) for each in tokens]
        return OrderIdentity(
            shuffle=shuffle,
            when_one_ends=when_one_ends,
            shares=shares,
            tokens=limits if any(limits) else [],
        )

    @property
    def points(self) -> list[list[tuple[int, float]]]:
        """The shares as points (step, share); a constant share is one point."""
        return [each if isinstance(each, list) else [(0, each)] for each in self.shares]


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

    def identity(self) -> OrderIdentity:
        """Return the settings that the order depends on."""

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


class Given(msgspec.Struct, frozen=True, array_like=True):
    """What a source gave before a leg."""

    rows: list[Count] = []
    """Rows of each row length, in ascending order. Empty if there were none."""
    tokens: Count | None = 0
    """Tokens without padding; None if nobody has counted them."""
    lag: Annotated[int, Meta(gt=-(1 << 62), lt=1 << 62)] = 0
    """See `MixtureSchedule`."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a leg of a run begins."""

    step: int
    numbers: Sequence[int]
    """Numbers of the sources in the run; the order of each source's rows depends on its number."""
    given: Sequence[Given]
    """What each source has given before."""

    @staticmethod
    def of_run(num_sources: int) -> Start:
        """Return the start of a run, where no source has given anything."""
        return Start(0, range(num_sources), [Given()] * num_sources)


def seed_of_source(seed: int, number: int) -> int:
    """Return the seed of a source's order: the first source has the order of its plan alone."""
    return seed if number == 0 else xxhash.xxh3_64_intdigest(f"{seed} source {number}".encode())


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
