"""What a run gives, and when: the steps, epochs and ranks of sequences, and of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.legs import given_by, name_of
from tokenmill.load.opening import open_run
from tokenmill.load.steps.order import Order, check_rows, orders_by_length
from tokenmill.load.steps.schedule import Uses, seed_of_source
from tokenmill.load.steps.state import LoaderState, read_state
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.finding import FoundDocument, FoundUse, PlanSegments


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
        self._known_orders: dict[int, dict[int, Order]] = {}

    def uses(self, source: int, sequences: Int64Array) -> Uses:
        """Return when sequences of a source were used, and will be until its epoch ends.

        A plan's are computed. For a mixture, all steps before that of the state are computed once,
        and those to come are not known.

        Args:
            source: number of the source in the run.
            sequences: shape (n,).
        """
        schedule: Any = self.batches.schedule  # not of a curriculum
        found: Uses = schedule.uses(source, sequences, self.state.step, whole_epoch=True)
        return found

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
        orders = self._orders(source) if self.rows[source] else {}
        check_rows(self.rows[source], orders, self.batches.reader(source).plan)
        for order, rows in zip(orders.values(), self.rows[source], strict=True):
            epochs, rest = divmod(rows, order.size)
            places = order.places(epochs, sequences)
            times += (epochs + (places < rest)) * (places < order.size)
        return times

    def _orders(self, source: int) -> dict[int, Order]:
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


class UsesOfDocuments:
    """Finds the rows of a run that have occurrences in documents of a dataset.

    Args:
        state: the state of the run's loader, or a JSON file with one.
        dataset: the dataset that is searched: one of the run, or one that shares datasets with it.

    Raises:
        UserError: the run has nothing of the dataset.
    """

    def __init__(self, state: Mapping[str, Any] | str | Path, dataset: Dataset) -> None:
        seen = Seen(read_state(state), [dataset])
        self._seen, self.step = seen, seen.state.step
        names = [name_of(each) for each in seen.state.sources]
        self._names = [
            f"{name}, plan {each.plan_name}" if names.count(name) > 1 else name
            for name, each in zip(names, seen.state.sources, strict=True)
        ]
        self._shards = _shards(dataset)
        self._firsts = [dataset.first_document(number) for number in range(len(self._shards))]
        self._sources: list[tuple[int, dict[tuple[str, int], int], PlanSegments]] = []
        for number in range(len(seen.state.sources)):
            reader = seen.batches.reader(number)
            shards = enumerate(_shards(reader.dataset))
            own = {shard: reader.dataset.first_document(at) for at, shard in shards}
            if not own.keys().isdisjoint(self._shards):
                self._sources.append((number, own, PlanSegments(reader.plan, reader.dataset)))
        if not self._sources:
            why = f"its sources are {', '.join(map(name_of, seen.state.sources))}"
            where = dataset.location
            raise UserError("the run of the state has none of this data", where=where, why=why)

    def locate(self, found: Sequence[FoundDocument], spans: Sequence[Int64Array]) -> None:
        """Set the uses of documents of one shard, given the tokens of their occurrences."""
        at = int(np.searchsorted(self._firsts, found[0].document, side="right")) - 1
        for each in found:
            each.uses = []
        for number, own, segments in self._sources:
            if self._shards[at] not in own:
                continue
            shift = own[self._shards[at]] - self._firsts[at]
            numbers = np.array([each.document + shift for each in found])
            sequences = [each for each, *_ in segments.sequences(numbers, spans)]
            self._add(number, found, sequences)

    def _add(
        self, number: int, found: Sequence[FoundDocument], sequences: Sequence[list[int]]
    ) -> None:
        """Add the uses of each document's sequences of a source."""
        owners = np.repeat(np.arange(len(found)), [len(each) for each in sequences])
        flat = np.array([sequence for each in sequences for sequence in each], np.int64)
        uses = self._seen.uses(number, flat)
        ranks = self._seen.ranks(number, flat, uses)
        lists = (each.tolist() for each in (uses.members, uses.steps, uses.epochs, ranks))
        for member, step, epoch, rank in zip(*lists, strict=True):
            use = FoundUse(
                source=self._names[number],
                sequence=int(flat[member]),
                step=None if step < 0 else step,
                epoch=epoch,
                rank=None if step < 0 else rank,
                is_given=0 <= step < self.step,
            )
            place = found[owners[member]]
            place.uses = [*(place.uses or []), use]


def _shards(dataset: Dataset) -> list[tuple[str, int]]:
    """The shards of a dataset, or of those behind a view: id of the dataset, and number in it."""
    return [
        (root.manifest.dataset_id, number)
        for root in dataset.roots
        for number in range(len(root.shards))
    ]
