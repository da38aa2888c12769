"""The rows of a step of a run: where they come from and what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenmill.encode.engine import Reference
from tokenmill.load.legs import describe_leg, name_of
from tokenmill.load.seen import Seen
from tokenmill.load.steps.state import LoaderState
from tokenmill.reports.sequence import SequenceView, decoded_sequence
from tokenmill.store.dataset import Dataset
from tokenmill.store.stored_reference import open_reference


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of a step."""

    rank: int
    row: int
    """Row in the batch of the rank, from 0."""
    source: int
    """Number of its source in the run."""
    name: str
    """Name of the source."""
    plan: str
    """Name of its plan."""
    epoch: int
    sequence: int


class Steps:
    """The steps of a run, from its state alone.

    Args:
        state: the state of a loader.
        datasets: open datasets, for data that has moved.
        tokenizer: the tokenizer, if the datasets were built with one written in Python.

    Raises:
        UserError: data is missing, or the state is one of a curriculum.
    """

    def __init__(
        self, state: LoaderState, datasets: Sequence[Dataset] = (), tokenizer: object = None
    ) -> None:
        self.state, self._tokenizer = state, tokenizer
        self._seen = Seen(state, datasets)
        self._reference: Reference | None = None

    def leg_at(self, step: int) -> str:
        """Return the leg of a step in words."""
        legs = [leg for leg in self.state.all_legs if leg.first_step <= step]
        return f"leg from step {legs[-1].first_step:,}: {describe_leg(self.state, legs[-1])}"

    def rows(self, step: int, ranks: int | None = None) -> list[StepRow]:
        """Return the rows of a step, by rank.

        Args:
            step: the step, counted from 0.
            ranks: number of ranks; by default that of the run at the step.

        Raises:
            UserError: the step does not exist, or cannot be divided among the ranks.
        """
        batches, ranks = self._seen.batches, ranks or self._seen.ranks_at(step)
        whole, dealt = batches.rows_of_ranks(step, ranks)
        found = []
        for rank, places in enumerate(dealt.tolist()):
            for row, place in enumerate(places):
                number = int(whole.sources[place])
                source = self.state.sources[number]
                plan = batches.reader(number).plan.folder.name
                numbers = int(whole.epochs[place]), int(whole.sequences[place])
                found.append(StepRow(rank, row, number, name_of(source), plan, *numbers))
        return found

    def view(self, row: StepRow) -> SequenceView:
        """Decode a row, as it is stored.

        Raises:
            UserError: the Python tokenizer is missing or differs.
            VerificationError: the plan or a block of tokens is damaged.
        """
        reader = self._seen.batches.reader(row.source)
        if self._reference is None:
            self._reference = open_reference(reader.dataset, self._tokenizer)
        return decoded_sequence(reader, row.sequence, self._reference)

    @property
    def changes(self) -> list[str]:
        """What the loader does to rows that `view` does not show."""
        labels = self.state.labels
        names = {"masked_lm": "masks tokens", "fill_in_middle": "fills in the middle"}
        return [text for name, text in names.items() if labels.get(name) is not None]

    def tokens_of_inputs(self, steps: Iterable[int]) -> list[tuple[str, int]]:
        """Return the inputs of the documents in some steps, with tokens, the largest first.

        If the run has several sources, the input also has the name of its source.
        """
        counts: Counter[str] = Counter()
        names = [f" of {name_of(source)}" for source in self.state.sources]
        for step in steps:
            for each in self._seen.batches.explain(step, 1):
                of = names[each.plan] if len(names) > 1 else ""
                counts[f"{each.record['source']}{of}"] += each.length
        return counts.most_common()
