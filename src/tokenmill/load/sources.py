"""The sources of a run: readers by number, opened when a step needs them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.steps.state import SourceState, describe_plan
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.dataset import Dataset, is_dataset
from tokenmill.store.plan import Plan, open_plan


class Sources:
    """The readers of a run, by the numbers of their sources.

    Args:
        readers: the readers of the present leg.
        names: their names, if they are a mixture.
    """

    def __init__(self, readers: Sequence[RowReader], names: Sequence[str] = ()) -> None:
        self.numbers: Sequence[int] = range(len(readers))
        """Numbers in the run of the sources of the last leg."""
        self.states = [
            describe_plan(reader.dataset, reader.plan, name)
            for reader, name in zip(readers, names or [""] * len(readers), strict=True)
        ]
        """All sources of the run."""
        self.known: Sequence[Dataset] = ()
        """Open datasets, in which sources of earlier legs are looked for."""
        self._readers = dict(enumerate(readers))

    @property
    def present(self) -> list[RowReader]:
        """The readers of the last leg."""
        return [self._readers[number] for number in self.numbers]

    def __getitem__(self, number: int) -> RowReader:
        """Return the reader of a source, which is opened if it belongs to an earlier leg only.

        Raises:
            UserError: its dataset or plan is not where it was.
        """
        if number not in self._readers:
            like = self.present[0]
            opened = [reader.dataset for reader in self._readers.values()]
            dataset, plan = open_source(self.states[number], [*self.known, *opened])
            dtype = None if like.dtype == like.dataset.token_dtype else like.dtype
            self._readers[number] = RowReader(dataset, plan, like.targets, dtype)
        return self._readers[number]

    def __iter__(self) -> Iterator[tuple[int, RowReader]]:
        """Yield number and reader of each source of the present leg."""
        return zip(self.numbers, self.present, strict=True)

    def of_run(
        self, states: Sequence[SourceState], numbers: Sequence[int], known: Sequence[Dataset]
    ) -> Sources:
        """Return the same present readers, as the sources with these numbers of a run."""
        found = copy.copy(self)
        found.numbers, found.known = numbers, known
        own = dict(zip(numbers, self.states, strict=True))
        found.states = [own.get(number, state) for number, state in enumerate(states)]
        found._readers = dict(zip(numbers, self.present, strict=True))
        return found

    def twin(self) -> Sources:
        """Return the same sources for another thread, with readers of their own."""
        found = copy.copy(self)
        found._readers = {number: reader.twin() for number, reader in self}
        return found


def open_source(source: SourceState, known: Iterable[Dataset] = ()) -> tuple[Dataset, Plan]:
    """Open the dataset and the plan of a source.

    Args:
        source: what a state says of it.
        known: open datasets, which are looked at first; of views, also what they are made of.

    Raises:
        UserError: the dataset or the plan is not there.
    """
    dataset = _dataset_of(source, known)
    if source.plan_name:
        try:
            plan = open_plan(dataset, source.plan_name)
            if plan.manifest.plan_id == source.plan:
                return dataset, plan
        except UserError:  # another plan may have its id
            pass
    for name in dataset.plans:
        plan = open_plan(dataset, name)
        if plan.manifest.plan_id == source.plan:
            return dataset, plan
    hint = "pack it again with the same options"
    where = f"{dataset.location}, dataset {source.dataset}"
    what = f"the dataset lacks the plan of the state{source.name and f' for {source.name}'}"
    why = f"it needs plan {source.plan}, which was {source.plan_name or 'there'}"
    raise UserError(what, where=where, why=why, hint=hint)


def _dataset_of(source: SourceState, known: Iterable[Dataset]) -> Dataset:
    opened = list(known)
    roots = [root for dataset in opened for root in dataset.roots]
    for dataset in [*opened, *roots]:
        if dataset.manifest.dataset_id == source.dataset:
            return dataset
    place = source.location
    if place and not is_remote(place) and is_dataset(Path(place)):
        found = Dataset(place)
        if found.manifest.dataset_id == source.dataset:
            return found
        place = f"{place}, which is dataset {found.manifest.dataset_id} now"
    why = f"it needs dataset {source.dataset}, which was {place or 'at an unknown place'}"
    hint = "give the dataset: --dataset DIR, or datasets=[...] in Python; to plan a rest, "
    hint += "--rest-dataset DIR, or rest_datasets=[...]"
    raise UserError("a dataset of the state is missing", why=why, hint=hint)
