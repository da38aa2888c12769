"""Batches: from the number of a step to the arrays of this rank's part of the global batch.

    step ──schedule──▶ global batch ──deal──▶ rows of this rank ──read──▶ rows ──▶ arrays

The global batch of a step is the same for any number of ranks and workers. Only the dealing depends
on them, so a state is just the step and what identifies the data and the order.
"""

from __future__ import annotations

import copy
import hashlib
import operator
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.html import Html, card
from tokenmill.core.pictures import share_bar
from tokenmill.core.records import Int64Array
from tokenmill.core.values import counted
from tokenmill.load.ahead import ReadAhead
from tokenmill.load.columns import Batch, BatchOptions, columns_of
from tokenmill.load.fill_in_middle import OUTCOME_NAMES, Infilling
from tokenmill.load.global_rows import GlobalRows
from tokenmill.load.legs import amended, at_step, with_epochs
from tokenmill.load.metrics import keep_metrics
from tokenmill.load.rows.provenance import SegmentOrigin
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.run_schedule import Chain
from tokenmill.load.sources import Sources
from tokenmill.load.stats import Meter, Timed
from tokenmill.load.steps.batch_size import BatchSize, OrderOptions, known_ranks
from tokenmill.load.steps.schedule import GlobalBatch, Schedule
from tokenmill.load.steps.state import LoaderState, check_state
from tokenmill.store.dataset import Dataset

AUDIT_COLUMNS = ("input_ids", "labels", "position_ids")

Place = tuple[int, int, int]
"""A step, the number of states loaded so far, and the revision of the schedule."""


class Batches:
    """An iterator over the batches of one rank, as dicts of NumPy arrays.

    `Dataset.batches` and `tokenmill.mix_batches` create it. `state_dict` and `load_state_dict`
    resume at any step, on any number of ranks.

    Raises:
        UserError: options contradict each other, or the global batch cannot be divided among the
            ranks.
    """

    def __init__(
        self,
        readers: Sequence[RowReader],
        schedule: Schedule,
        size: BatchSize,
        order: OrderOptions,
        options: BatchOptions,
    ) -> None:
        self.rank, self.world_size = known_ranks(order.rank, order.world_size)
        if not 0 <= self.rank < self.world_size:
            why = f"got rank={self.rank}, world_size={self.world_size}"
            raise UserError("rank must be between 0 and world_size - 1", why=why)
        if problem := options.problems():
            raise UserError("invalid batch option", why=problem)
        for num_rows in schedule.row_counts:
            if num_rows % self.world_size:
                raise UserError(
                    "cannot divide the global batch among the ranks",
                    why=f"it has {num_rows} rows, and there are {self.world_size} ranks",
                    hint="use a global batch size that is a multiple of the number of ranks",
                )
        self._sources, self._size = Sources(readers, schedule.source_names), size
        self._made_of = self._sources, schedule
        self._run: LoaderState | None = None
        """The state that the run was amended in last."""
        self.schedule = schedule
        """The sequences of each step. For a mixture, `report()` describes its sources."""
        self.order, self.options, self._seed = order, options, order.seed
        self.step = 0
        """The step of the next batch."""
        self._num_resumed = 0
        self.meter = Meter()
        self._ahead = ReadAhead(self._sources, schedule)
        self._infilling: Infilling | None = None
        if options.fill_in_middle is not None:
            self._infilling = Infilling(options.fill_in_middle, list(readers), order.seed)
        keep_metrics(self.meter, self.stats, order.metrics, self.rank, self.world_size)

    def __len__(self) -> int:
        """Number of steps in total, including those already taken."""
        if self.schedule.num_steps is None:
            raise TypeError(
                "the number of steps is unknown: the loader has no end or serves a mixture"
            )
        return self.schedule.num_steps

    def __repr__(self) -> str:
        steps = self.schedule.num_steps
        length = "no known end" if steps is None else counted(steps, "step")
        return f"<Batches: {length}, rank {self.rank} of {self.world_size}>"

    def _repr_html_(self) -> str:
        """Return a table and the progress, for notebooks."""
        return self.card("Batches")

    def card(self, title: str) -> Html:
        """The next step, the size of a batch and where its rows come from, for notebooks."""
        steps, rows = self.schedule.num_steps, " or ".join(map(str, self.schedule.row_counts))
        readers = self._sources.present
        plans = [f"{each.dataset.location}, plan {each.plan.folder.name}" for each in readers]
        facts = [
            ("step", f"{self.step:,}" + ("" if steps is None else f" of {steps:,}")),
            ("batch", f"{rows} rows, for rank {self.rank} of {self.world_size}"),
            ("data", "\n".join(plans)),
            ("columns", ", ".join(self.options.columns)),
        ]
        return card(title, facts, share_bar(self.step / steps, "steps taken") if steps else None)

    @property
    def filled_in_middle(self) -> dict[str, int]:
        """Counts of what fill-in-the-middle did to the segments of this rank's batches so far.

        "PSM" and "SPM" count segments that were cut, "as stored" those that were not chosen. The
        other keys say why a chosen segment was not cut.
        """
        counts = sorted(self.meter.counts.items())
        return {name: count for name, count in counts if name in OUTCOME_NAMES}

    @property
    def rows_left(self) -> int:
        """Sequences at the end of the plan that do not fill a global batch and are skipped."""
        return self.schedule.rows_left

    @property
    def row_lengths(self) -> list[int]:
        """The lengths of the plans' rows in tokens, in ascending order."""
        rows = [reader.plan.rows for reader in self._sources.present]
        return sorted({length for each in rows for length in each.row_lengths})

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over batches, starting with the next step.

        Raises:
            UserError: all batches have been returned already.
        """
        self.begin_pass()
        return Timed(iter(self.advance, None), self.meter)

    def begin_pass(self) -> None:
        """Go back to the first step if the option `restart` is set.

        Raises:
            UserError: all batches have been returned already.
        """
        self.meter.place = None
        if self.order.restart:
            self.step = 0
        if self.global_batch(self.step) is None:
            raise UserError(
                "no batches left: all have been returned already",
                why=f"the next step would be step {self.step}",
                hint="ask for more epochs, or set restart=True to repeat the same pass",
            )

    def advance(self) -> Batch | None:
        """Return the batch of the next step and move on, or None after the last step."""
        whole = self.global_batch(self.step)
        if whole is None:
            return None
        self._ahead.before(self.step, 1, self._sequences_of)
        batch = self._arrays(whole)
        self.step += 1
        return batch

    def twin(self) -> Batches:
        """Return the same batches for another thread, from the next step on, with its own files."""
        twin = copy.copy(self)
        twin._sources = self._sources.twin()
        twin.schedule = copy.copy(self.schedule)
        twin._ahead = ReadAhead(twin._sources, twin.schedule)
        twin.meter = Meter()
        return twin

    @property
    def place(self) -> Place:
        """The position of the next batch: the step, and all changes of the schedule so far."""
        return self.step, self._num_resumed, self.schedule.revision

    def give_out(self, standing: object, counts: Counter[str]) -> None:
        """Move past the next batch, which a twin made.

        `standing` and `counts` are those of the twin's schedule and meter.
        """
        self.step += 1
        self.schedule.follow(standing)
        self.meter.add_counts(counts)

    def stats(self) -> dict[str, float]:
        """Return counts and waits as one flat dict, ready for an experiment tracker.

        `step`, `epoch` and `epochs/NAME` are the position of the run: they continue when a state is
        loaded. The others count from 0 since the loader was opened, for this rank, without batches
        that are prepared and not taken: `steps`, `samples`, `tokens`, `tokens/NAME`, `padding`,
        `padding_share`, `wait_seconds`, `wait_share` (of the last 100 steps), `bytes_fetched`.
        """
        step = self.step
        if self.meter.place is not None:
            step, standing = self.meter.place
            self.schedule.follow(standing)
        fetched = self.bytes_fetched + self.meter.counts["bytes_fetched"]
        figures = self.meter.figures(self.schedule.source_names)
        return {"step": step, "bytes_fetched": fetched, **figures, **self.schedule.epochs(step)}

    @property
    def bytes_fetched(self) -> int:
        """Bytes that this process has downloaded from buckets since the datasets were opened."""
        origins = [reader.dataset.origin for reader in self._sources.present]
        return sum(each.num_bytes for each in {each.fetcher for each in origins if each})

    def every(self, stride: int, first: int) -> Iterator[Batch]:
        """Yield the batches of every `stride`-th step from `first` on, without moving `step`."""
        while (whole := self.global_batch(first)) is not None:
            self._ahead.before(first, stride, self._sequences_of)
            first += stride
            yield self._arrays(whole)

    def global_batch(self, step: int) -> GlobalBatch | None:
        """Return the sequences of a step over all ranks, or None after the last step."""
        return self.schedule.batch(_step(step))

    def batch(self, step: int) -> Batch:
        """Return the batch of any step for this rank, without moving on.

        Raises:
            UserError: the step does not exist.
            VerificationError: a plan or a block of tokens is damaged.
        """
        whole = self._existing(step)
        self._ahead.before(step, 1, self._sequences_of)
        return columns_of(
            self._rows.content(whole, self._rows.dealt(whole, self.world_size)[self.rank])
        )

    def digest(self, step: int) -> str:
        """Return the SHA-256 of a global batch, to compare runs. The order of rows is ignored.

        Raises:
            UserError: the step does not exist.
        """
        whole = self._existing(step)
        digest = hashlib.sha256()
        for row in range(len(whole.sequences)):
            content = self._rows.content(whole, np.array([row]), AUDIT_COLUMNS)
            for array in columns_of(content).values():
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def explain(self, step: int, ranks: int | None = None) -> list[SegmentOrigin]:
        """Return the origin of every segment in a step, over all ranks, by rank and row.

        `ranks` is the number of ranks, by default that of this loader.

        Raises:
            UserError: the step does not exist.
        """
        return self._rows.origins(*self.rows_of_ranks(step, ranks))

    def rows_of_ranks(self, step: int, ranks: int | None = None) -> tuple[GlobalBatch, Int64Array]:
        """Return a global batch, and its rows of each rank, shape (ranks, num_rows / ranks).

        `ranks` is the number of ranks, by default that of this loader.

        Raises:
            UserError: the step does not exist, or its rows cannot be divided among the ranks.
        """
        whole, ranks = self._existing(step), ranks or self.world_size
        if len(whole.sequences) % ranks:
            why = f"it has {len(whole.sequences)} rows, and there are {ranks} ranks"
            raise UserError(f"cannot divide step {step} among the ranks", why=why)
        return whole, self._rows.dealt(whole, ranks)

    def reader(self, number: int) -> RowReader:
        """Return the reader of a source of the run.

        Raises:
            UserError: its dataset or plan is not where it was.
        """
        return self._sources[number]

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Return the state to resume at a step, by default the next one.

        The state consists of plain values and is smaller than 1 KB. Pass `step` if a DataLoader
        with workers serves the batches: this object cannot see how many were consumed.
        """
        values: dict[str, Any] = msgspec.to_builtins(
            self._state(self.step if step is None else _step(step))
        )
        return values

    def load_state_dict(self, state: dict[str, Any], datasets: Sequence[Dataset] = ()) -> None:
        """Resume from a state. The number of ranks may differ.

        Args:
            state: what `state_dict` or `tokenmill.amend` returned.
            datasets: where to look for the data of earlier legs first, if it has moved. It is only
                needed for steps of these legs.

        Raises:
            UserError: the state belongs to other data, another order or another global batch.
        """
        if self.order.restart:
            why = "each pass starts at the first step, because restart=True"
            raise UserError("cannot load a state into this loader", why=why)
        self._enter(check_state(state, self._own_state()), datasets)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Change shares of a mixture from the next step on, which begins a new leg of the run.

        All ranks must make the same call before the same step. A state names all legs, so a run
        can be replayed. To resume, open the mixture with any shares: those of the state hold.

        Args:
            shares: shares by the names of sources, or their numbers if they have no names. They
                are relative to those of the other sources, which stay as they are.

        Raises:
            UserError: there is no such source, a share is invalid, or this is no mixture.
        """
        state = self._state(self.step)
        if not state.order.shares:
            raise UserError("cannot set shares", why="the loader is not one of a mixture")
        self._enter(amended(state, shares=shares, set_shares=True))

    def _enter(self, state: LoaderState, datasets: Sequence[Dataset] = ()) -> None:
        """Go on from a state that fits."""
        sources, schedule = self._made_of
        if state.legs:
            state = with_epochs(state, schedule.source_epochs)
            known = [*datasets, *self._sources.known]
            sources = sources.of_run(state.sources, state.legs[-1].sources, known)
            schedule = Chain(state, sources)
        if state.step > (state.legs[-1].first_step if state.legs else -1):
            schedule.resume(state.step, state.progress)
        self._run = state if state.legs else None
        self._sources, self.schedule = sources, schedule
        self._ahead = ReadAhead(sources, schedule)
        self.step, self.meter.place = state.step, None
        self._num_resumed += 1

    def _own_state(self, step: int | None = None) -> LoaderState:
        """Return what the loader was opened with, and the progress at a step if one is given."""
        sources, schedule = self._made_of
        return LoaderState(
            step=step or 0,
            seed=self._seed,
            global_batch=self._size,
            sources=sources.states,
            order=schedule.identity(),
            labels=self._label_options(),
            progress={} if step is None else schedule.progress(step),
            epochs=schedule.source_epochs,
            ranks=self.world_size,
        )

    def _state(self, step: int) -> LoaderState:
        if self._run is None:
            return self._own_state(step)
        found = at_step(self._run, step, self.world_size)
        if step > (found.legs[-1].first_step if found.legs else -1):
            progress = self.schedule.progress(step)
            found = msgspec.structs.replace(found, progress=progress)
        if found.legs and isinstance(self.schedule, Chain):
            given = self.schedule.given(len(found.legs) - 1)
            last = msgspec.structs.replace(found.legs[-1], given=list(given))
            found = msgspec.structs.replace(found, legs=[*found.legs[:-1], last])
        return found

    def _label_options(self) -> dict[str, Any]:
        """Return the options that decide labels, as plain values."""
        options = [self._sources.present[0].targets, self.options.masked_lm]
        labels, masked_lm = msgspec.json.decode(msgspec.json.encode(options))
        options_of_labels = {**labels, "masked_lm": masked_lm}
        if self._infilling is not None:
            options_of_labels["fill_in_middle"] = self._infilling.identity
        return options_of_labels

    @property
    def _rows(self) -> GlobalRows:
        return GlobalRows(
            self._sources, self.options, self._seed, self._infilling, self.order.even_attention
        )

    def _existing(self, step: int) -> GlobalBatch:
        whole = self.global_batch(step)
        if whole is None:
            num_steps = self.schedule.num_steps
            why = "the batches end before it"
            if num_steps is not None:
                why = f"there are {num_steps} steps, counted from 0"
            hint = "ask for more epochs"
            raise UserError(f"step {step} does not exist", why=why, hint=hint)
        return whole

    def _arrays(self, whole: GlobalBatch) -> Batch:
        """Return this rank's part of a global batch, and count it."""
        content = self._rows.content(whole, self._rows.dealt(whole, self.world_size)[self.rank])
        known, names = content.known_provenance, self.schedule.source_names
        if self._infilling is not None:
            self._infilling.count(known.layout, self.meter.counts)
        self.meter.add_rows(content.rows.segmentation, known.sources, names)
        return columns_of(content)

    def _sequences_of(self, whole: GlobalBatch, number: int) -> Int64Array:
        """Return the sequences that this rank reads with the reader of this number."""
        chosen = self._rows.dealt(whole, self.world_size)[self.rank]
        found: Int64Array = whole.sequences[chosen[whole.sources[chosen] == number]]
        return found


def _step(value: int) -> int:
    """Return a step as an int.

    Raises:
        UserError: the step is negative.
    """
    step = operator.index(value)
    if step < 0:
        raise UserError(f"step {step} does not exist", why="steps are counted from 0")
    return step
