"""The schedule of an amended run: the legs of the run as one.

    step      0         1000                 2500
    leg       [0: A B]  [1: A B, more of B]  [2: A C]
                        A and B go on        A goes on, C begins

Sources have numbers in the run: A is 0, B is 1, C is 2.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.legs import LegSource, given_after
from tokenmill.load.sources import Sources
from tokenmill.load.steps.batch_size import check_ramp
from tokenmill.load.steps.mixture import MixtureSchedule
from tokenmill.load.steps.order import Order, steps_of
from tokenmill.load.steps.plan_schedule import PlanSchedule
from tokenmill.load.steps.schedule import (
    Given,
    GlobalBatch,
    OrderIdentity,
    Schedule,
    Start,
    Uses,
    seed_of_source,
    token_counts,
)
from tokenmill.load.steps.state import Leg, LoaderState
from tokenmill.store.plan import Plan

ROWS_AT_ONCE = 1 << 20


class Chain(Schedule):
    """The steps of all legs of a run. What is not about a step is that of the last leg.

    A leg is opened when one of its steps, or one after it, is needed first.

    Args:
        state: a state with the legs of the run.
        sources: the sources of the run.
    """

    def __init__(self, state: LoaderState, sources: Sources) -> None:
        legs, self._seed, self._sources = state.legs, state.seed, sources
        self._legs = legs
        self._given: dict[int, Sequence[Given]] = {
            number: leg.given for number, leg in enumerate(legs) if leg.given or number == 0
        }
        self._schedules: dict[int, Schedule] = {}
        names = [each.name or str(number) for number, each in enumerate(state.sources)]
        if any(leg.order.shares for leg in legs):
            self.source_names = names
        if legs[-1].order.shares:
            self.present.source_names = [names[number] for number in legs[-1].sources]

    @property
    def present(self) -> Schedule:
        """The schedule of the last leg."""
        return self._schedule(len(self._legs) - 1)

    @property
    def source_epochs(self) -> list[int | None]:
        return self.present.source_epochs

    @property
    def num_steps(self) -> int | None:
        return self.present.num_steps

    @property
    def rows_left(self) -> int:
        return self.present.rows_left

    @property
    def row_counts(self) -> list[int]:
        return self.present.row_counts

    def batch(self, step: int) -> GlobalBatch | None:
        """Return the global batch of a step, with the numbers of the run as sources."""
        number = self._leg_of(step)
        found = self._schedule(number).batch(step)
        if found is None:
            return None
        numbers = self._legs[number].sources
        sources = np.array(numbers, np.int64)[found.sources]
        return replace(found, sources=sources, possible=tuple(numbers))

    def identity(self) -> OrderIdentity:
        return self.present.identity()

    def progress(self, step: int) -> dict[str, Any]:
        return self._schedule(self._leg_of(step)).progress(step)

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        self.present.resume(step, progress)

    def epochs(self, step: int) -> dict[str, float]:
        return self._schedule(self._leg_of(step)).epochs(step)

    def report(self) -> Any:
        """Return what the run has taken from the sources of the last leg, if that is a mixture."""
        present: Any = self.present
        return present.report()

    def standing(self) -> object:
        return self.present.standing()

    def follow(self, standing: object) -> None:
        self.present.follow(standing)

    def uses(
        self, number: int, sequences: Int64Array, stop: int, *, whole_epoch: bool = False
    ) -> Uses:
        """Return when sequences of a source of the run are used before the step `stop`.

        With `whole_epoch`, also those to come in its epoch, if it is in the last leg.
        """
        parts = [Uses(*np.empty((3, 0), np.int64))]
        ends = [*(leg.first_step for leg in self._legs[1:]), stop]
        for at, (leg, end) in enumerate(zip(self._legs, ends, strict=True)):
            if number in leg.sources:
                own, goes_on = leg.sources.index(number), whole_epoch and leg is self._legs[-1]
                schedule: Any = self._schedule(at)
                parts.append(schedule.uses(own, sequences, end, whole_epoch=goes_on))
        return Uses.joined(parts)

    def given(self, number: int) -> Sequence[Given]:
        """Return what each source of the run had given before a leg."""
        known = max(each for each in self._given if each <= number)
        for before in range(known, number):
            leg, first_step = self._legs[before], self._legs[before + 1].first_step
            progress = self._schedule(before).progress(first_step)
            self._given[before + 1] = given_after(self._given[before], leg.sources, progress)
        return self._given[number]

    def __copy__(self) -> Chain:
        """Copy with schedules of its own, because another thread may be at another step."""
        found = object.__new__(Chain)
        found.__dict__.update(self.__dict__)
        found._given = dict(self._given)
        found._schedules = {n: copy.copy(each) for n, each in list(self._schedules.items())}
        return found

    def _schedule(self, number: int) -> Schedule:
        if number not in self._schedules:
            self._schedules[number] = self._opened(self._legs[number], self.given(number))
        return self._schedules[number]

    def _leg_of(self, step: int) -> int:
        return max(n for n, leg in enumerate(self._legs) if leg.first_step <= step)

    def _opened(self, leg: Leg, given: Sequence[Given]) -> Schedule:
        """Return the steps of a leg, given what each source of the run gave before."""
        order, numbers, size = leg.order, leg.sources, leg.global_batch
        readers = [self._sources[number] for number in numbers]
        check_ramp(size.points)
        own = [given[number] if number < len(given) else Given() for number in numbers]
        seed, shuffle = self._seed, order.shuffle or "global"
        if not order.shares:
            start = Start(leg.first_step, numbers, own)
            plan, epochs = readers[0].plan, leg.epochs[0]
            return PlanSchedule(plan, size, seed=seed, shuffle=shuffle, epochs=epochs, start=start)
        for place, (number, reader) in enumerate(zip(numbers, readers, strict=True)):
            rows = Order(steps_of(reader.plan), seed_of_source(seed, number), shuffle)
            tokens = _tokens_of(own[place], reader.plan, rows)
            own[place] = msgspec.structs.replace(own[place], tokens=tokens)
        states = [self._sources.states[number] for number in numbers]
        lists = states, order.points, leg.epochs, order.tokens or [None] * len(numbers)
        legs = [LegSource(*each) for each in zip(*lists, strict=True)]
        mixed = [
            each.opened(reader.dataset, reader.plan)
            for each, reader in zip(legs, readers, strict=True)
        ]
        start = Start(leg.first_step, numbers, own)
        return MixtureSchedule(mixed, size, seed, shuffle, order.when_one_ends or "stop", start)


def _tokens_of(given: Given, plan: Plan, order: Order) -> int:
    """Return the tokens that a source has given, which are counted unless they are known."""
    if given.tokens is not None:
        return given.tokens
    if len(given.rows) > 1:
        why = "its rows have several lengths"
        raise UserError("cannot mix this source", where=str(plan.folder), why=why)
    return _tokens_of_rows(plan, order, given.rows[0]) if given.rows else 0


def _tokens_of_rows(plan: Plan, order: Order, num_rows: int) -> int:
    """Return the tokens of the first rows of an order over all epochs, without padding."""
    epochs, rest = divmod(num_rows, order.size)
    whole = _tokens_at(plan, order, 0, order.size) if epochs else 0
    return epochs * whole + _tokens_at(plan, order, epochs, rest)


def _tokens_at(plan: Plan, order: Order, epoch: int, stop: int) -> int:
    total = 0
    for first in range(0, stop, ROWS_AT_ONCE):
        places = np.arange(first, min(first + ROWS_AT_ONCE, stop))
        total += int(token_counts(plan, order(epoch, places)).sum())
    return total
