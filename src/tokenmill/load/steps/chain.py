"""The legs of an amended run as one schedule.

    step      0         1000                 2500
    leg       [0: A B]  [1: A B, more of B]  [2: A C]
                        A and B go on        A goes on, C begins

Sources have numbers in the run: A is 0, B is 1, C is 2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.load.steps.mixture import MixtureProgress
from tokenmill.load.steps.schedule import GlobalBatch, OrderIdentity, Schedule
from tokenmill.load.steps.state import Count, Given, Leg, decoded

OpenLeg = Callable[[Leg, Sequence[Given]], Schedule]
"""Returns the schedule of a leg, given what each source of the run gave before."""


class Chain(Schedule):
    """The steps of all legs of a run. What is not about a step is that of the last leg.

    Args:
        legs: the legs, sorted by their first step; the first one begins at step 0.
        open_leg: called for a leg when one of its steps, or one after it, is needed first.
        names: names of all sources of the run; empty if it never was a mixture.
    """

    def __init__(self, legs: Sequence[Leg], open_leg: OpenLeg, names: Sequence[str]) -> None:
        self._legs, self._open_leg, self.source_names = list(legs), open_leg, names
        self._given: dict[int, Sequence[Given]] = {
            number: leg.given for number, leg in enumerate(legs) if leg.given or number == 0
        }
        self._schedules: dict[int, Schedule] = {}

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

    def legs(self) -> Iterator[tuple[Leg, Schedule]]:
        """Yield each leg and its schedule."""
        for number, leg in enumerate(self._legs):
            yield leg, self._schedule(number)

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
        found = Chain(self._legs, self._open_leg, self.source_names)
        found._given = dict(self._given)
        found._schedules = {n: copy.copy(each) for n, each in list(self._schedules.items())}
        return found

    def _schedule(self, number: int) -> Schedule:
        if number not in self._schedules:
            self._schedules[number] = self._open_leg(self._legs[number], self.given(number))
        return self._schedules[number]

    def _leg_of(self, step: int) -> int:
        return max(n for n, leg in enumerate(self._legs) if leg.first_step <= step)


def given_after(
    given: Sequence[Given], numbers: Sequence[int], progress: dict[str, Any]
) -> list[Given]:
    """Return what each source of a run has given after a leg.

    Args:
        given: what each source gave before the leg; those that are not listed gave none.
        numbers: numbers of the leg's sources in the run.
        progress: the progress of its schedule at its end.
    """
    found = [*given, *[Given()] * (max(numbers) + 1 - len(given))]
    if "lags" in progress:
        mixed = decoded(progress, MixtureProgress, "a mixture")
        lists = numbers, mixed.rows, mixed.tokens, mixed.lags
        if {len(each) for each in lists} != {len(numbers)}:
            raise UserError("the state belongs to another mixture")
        for number, num_rows, tokens, lag in zip(*lists, strict=True):
            found[number] = Given([num_rows], tokens, lag)
    else:
        rows = decoded(progress.get("rows"), list[Count], "a loader")
        found[numbers[0]] = Given(rows, None)
    return found
