"""What a run gives, and when: the steps, epochs and ranks of any sequences of its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.load.legs import given_by
from tokenmill.load.opening import open_run
from tokenmill.load.steps.chain import Chain
from tokenmill.load.steps.order import Order, check_rows, orders_by_length, own_sequences
from tokenmill.load.steps.schedule import Uses, seed_of_source
from tokenmill.load.steps.state import LoaderState
from tokenmill.store.dataset import Dataset


class Seen:
    """The run of a state: what it has given and will give.

    Args:
        state: the state of a loader.
        datasets: open datasets, for data that has moved.

    Raises:
        UserError: data is missing, or the state is one of a curriculum.
    """

    def __init__(self, state: LoaderState, datasets: Sequence[Dataset] = ()) -> None:
        self.state = state
        self.batches = open_run(state, datasets)
        """The batches of the run, at the step of the state."""
        self._known_orders: dict[int, list[tuple[int, Order, Int64Array | None]]] = {}

    def uses(self, source: int, sequences: Int64Array) -> Uses:
        """Return when sequences of a source were used, and will be until its epoch ends.

        A plan's are computed. For a mixture, all steps before that of the state are computed once,
        and those to come are not known.

        Args:
            source: number of the source in the run.
            sequences: shape (n,).
        """
        parts = [Uses(*np.empty((3, 0), np.int64))]
        for schedule, numbers, stop in self._legs():
            if source in numbers:
                number = numbers.index(source)
                is_last = stop is None
                until = self.state.step if stop is None else stop
                parts.append(schedule.uses(number, sequences, until, whole_epoch=is_last))
        return Uses.joined(parts)

    def ranks(self, source: int, sequences: Int64Array, uses: Uses) -> Int64Array:
        """Return the rank of each use, shape (n,); -1 if its step is not known.

        Ranks are those that a leg had at its end, with rows dealt evenly by attention cost.
        """
        found = np.full(len(uses.steps), -1)
        for step in np.unique(uses.steps[uses.steps >= 0]).tolist():
            whole, dealt = self.batches.rows_of_ranks(step, self.ranks_at(step))
            ranks = np.empty(dealt.size, np.int64)
            ranks[dealt] = np.arange(len(dealt))[:, None]
            rows = np.flatnonzero(whole.sources == source)
            ranks_of = zip(whole.sequences[rows].tolist(), whole.epochs[rows].tolist(), strict=True)
            known = dict(zip(ranks_of, ranks[rows].tolist(), strict=True))
            for use in np.flatnonzero(uses.steps == step).tolist():
                key = int(sequences[uses.members[use]]), int(uses.epochs[use])
                found[use] = known[key]
        return found

    @cached_property
    def rows(self) -> list[list[int]]:
        """Rows of each row length that each source has given before the state's step."""
        given = [each.rows for each in given_by(self.state)]
        return given + [[]] * (len(self.state.sources) - len(given))

    def times(self, source: int, sequences: Int64Array) -> Int64Array:
        """Return how often each sequence of a source was given, shape (n,)."""
        times = np.zeros(len(sequences), np.int64)
        orders = self._orders(source) if self.rows[source] else []
        check_rows(self.rows[source], orders, self.batches.reader(source).plan)
        for (_, order, members), rows in zip(orders, self.rows[source], strict=True):
            at, own = own_sequences(members, sequences)
            epochs, rest = divmod(rows, order.size)
            places = order.places(epochs, own)
            times[at] = (epochs + (places < rest)) * (places < order.size)
        return times

    def _orders(self, source: int) -> list[tuple[int, Order, Int64Array | None]]:
        if source not in self._known_orders:
            seed = seed_of_source(self.state.seed, source)
            shuffle = self.state.order.shuffle or "global"
            plan = self.batches.reader(source).plan
            self._known_orders[source] = orders_by_length(plan, seed, shuffle)
        return self._known_orders[source]

    def ranks_at(self, step: int) -> int:
        """Return the number of ranks at a step."""
        if step >= self.state.last.first_step:
            return self.state.ranks
        return [leg for leg in self.state.legs if leg.first_step <= step][-1].ranks

    def _legs(self) -> Iterator[tuple[Any, Sequence[int], int | None]]:
        """Yield the schedule of each leg, the numbers of its sources, and the step it ends at."""
        schedule = self.batches.schedule
        if not isinstance(schedule, Chain):
            yield schedule, range(len(self.state.sources)), None
            return
        stops = [leg.first_step for leg in self.state.legs[1:]]
        for (leg, each), stop in zip(schedule.legs(), [*stops, None], strict=True):
            yield each, leg.sources, stop
