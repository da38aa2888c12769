"""When a run gives documents that were found: the other half of `store.selecting.finding`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.legs import name_of
from tokenmill.load.seen import Seen
from tokenmill.load.steps.state import checked_state, read_state
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.finding import FoundDocument, FoundUse, PlanSegments


class UsesOfDocuments:
    """Finds the rows of a run that have occurrences in documents of a dataset.

    Args:
        state: the state of the run's loader, or a JSON file with one.
        dataset: the dataset that is searched: one of the run, or one that shares datasets with it.

    Raises:
        UserError: the run has nothing of the dataset.
    """

    def __init__(self, state: Mapping[str, Any] | str | Path, dataset: Dataset) -> None:
        found = checked_state(dict(state)) if isinstance(state, Mapping) else read_state(state)
        seen = Seen(found, [dataset])
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
