"""An overview of a dataset: the figures of a page, gathered once.

Counts come from the manifest and are exact. What would take longer for more documents comes from an
even sample (`reports/samples.py`), and `notes` says of how much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, Int64Array
from tokenmill.core.tables import Fact
from tokenmill.core.values import counted
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.token_bytes import tokens_of
from tokenmill.load.opening import open_batches
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.sources import open_source
from tokenmill.load.steps.state import LoaderState
from tokenmill.packing.comparison import Compared, compare
from tokenmill.packing.costs import named_shape
from tokenmill.packing.figures import Figures
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import figures_of
from tokenmill.packing.strategies import options_of_plan
from tokenmill.reports.contents import (
    SubsetCounts,
    ViewFacts,
    count_subsets,
    described,
    run_if_kept,
    view_facts,
)
from tokenmill.reports.inspect import DocumentView, decoded_document
from tokenmill.reports.lengths.analysis import (
    SEQUENCE_LENGTHS,
    TOKENS_PER_BATCH,
    Analysis,
    Question,
    analysis_of,
)
from tokenmill.reports.lengths.counts import Bin, LengthCounts
from tokenmill.reports.lengths.figures import Budget
from tokenmill.reports.samples import (
    chosen_documents,
    sampled_lengths,
    sampled_plan,
    smaller,
    token_histogram,
)
from tokenmill.reports.sequence import SequenceView, decoded_sequence
from tokenmill.reports.tokenizers.figures import TokenFigures, token_figures
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import Manifest, Run
from tokenmill.store.plan import Plan, open_plan
from tokenmill.store.stored_reference import open_reference, stored_tokenizer

MOST_DOCUMENTS = 4_000_000
MOST_TOKENS = 4_000_000
MOST_SEQUENCES = 500_000
MOST_COMPARED = 200_000
"""Documents to compare strategies with: each packs all of them."""
SLOW = ("optimal",)
"""Strategies that a page does not wait for."""
MOST_PLANS = 12
MOST_SOURCES = 300
MOST_COUNTED = 2_000_000
"""Documents whose subsets are counted: their tables are read."""
MOST_REJECTED_BYTES = 4 << 20
"""Of the files that list rejected records, for examples."""
EXAMPLES, EXAMPLE_CHARACTERS = 3, 400
SHOWN_DOCUMENTS, SHOWN_TOKENS = 24, 300
SHOWN_ROWS = 8
FREQUENT = 20
USUAL_SHAPE = "llama-2-7b"


class RejectedRecord(msgspec.Struct):
    """A record that the build did not accept, as its list names it."""

    source: str
    position: int
    reason: str
    detail: str = ""
    record: str = ""
    record_base64: bytes = b""
    """The record, if it is no text."""


@dataclass(frozen=True, slots=True)
class VocabularyUse:
    """The tokens of a sample."""

    tokens: int
    """Tokens that were counted."""
    figures: TokenFigures
    frequent: list[tuple[int, int]]
    """The most frequent ids and their counts."""


@dataclass(frozen=True, slots=True)
class PlanOverview:
    """A plan, with the sizes of its segments and of its sequences."""

    name: str
    plan_id: str
    options: PackOptions
    figures: Figures
    segments: list[Bin]
    fill: list[int]
    """Sequences by the share of the length that their tokens take: 20 steps of 5 percent."""


@dataclass(frozen=True, slots=True)
class StrategyComparison:
    """All strategies with the same options, on some documents."""

    options: PackOptions
    documents: int
    rows: list[Compared]


@dataclass(frozen=True, slots=True)
class BatchView:
    """Rows of one step of a loader."""

    plan: str
    step: int
    num_steps: int | None
    rows_in_batch: int
    rows: list[SequenceView]
    """The first rows of the global batch."""

    @property
    def is_asked(self) -> bool:
        """Whether a state asked for this step; then the page begins with it."""
        return self.num_steps is None


@dataclass(frozen=True, slots=True, repr=False)
class Overview:
    """A dataset as a whole: what it is, where it comes from, and how it can be trained on."""

    location: str
    facts: list[Fact]
    """What to know first, as names and values."""
    manifest: Manifest
    """Without its lists of files, and with the largest sources only."""
    view: ViewFacts | None
    """Where the documents of a view come from; None for a dataset."""
    subsets: dict[str, SubsetCounts]
    run: Run | None
    """How it was built, without the digests of rows."""
    num_sources: int
    rejected: dict[str, list[RejectedRecord]]
    """Examples of rejected records by reason, the most frequent reason first."""
    lengths: Analysis
    length_bins: list[Bin]
    vocabulary: VocabularyUse
    plans: list[PlanOverview]
    comparison: StrategyComparison | None
    batch: BatchView | None
    documents: list[DocumentView]
    spelled: dict[int, bytes]
    """The text of each id that documents, rows or frequent tokens show: UTF-8, or a part of it."""
    notes: list[str]
    """What was sampled, and what could not be shown."""

    def __repr__(self) -> str:
        counts = f"{self.lengths.documents:,} documents, {self.lengths.tokens:,} tokens"
        return f"<Overview of {self.location!r}: {counts}>"


def overview(
    dataset: Dataset,
    plan: Plan | None,
    state: LoaderState | None,
    tokenizer: object,
    advance: Advance,
) -> Overview:
    """Gather the figures of a dataset.

    Args:
        dataset: the dataset.
        plan: the plan of the batch. None for the first one of the dataset.
        state: the state of a loader, to show its next batch.
        tokenizer: the tokenizer of a dataset that was built with one in Python.
        advance: called with a stage, its number and the number of stages.

    Raises:
        UserError: the state or the tokenizer belongs to another dataset.
        VerificationError: a file of the dataset is damaged.
    """
    manifest, run, notes = dataset.manifest, run_if_kept(dataset), list[str]()
    advance("lengths", 1, 6)
    counts = _lengths(dataset, notes)
    question = Question(SEQUENCE_LENGTHS, named_shape(USUAL_SHAPE), Budget(TOKENS_PER_BATCH))
    analysis = analysis_of(dataset.location, counts, question)
    advance("plans", 2, 6)
    plans = _plans(dataset, plan, notes)
    advance("strategies", 3, 6)
    comparison = _comparison(dataset, plans, analysis, notes)
    advance("tokens", 4, 6)
    use = _vocabulary(dataset, notes)
    advance("documents and rows", 5, 6)
    reference, documents, batch = _reference(dataset, tokenizer, notes), list[DocumentView](), None
    if reference is not None:
        documents = _documents(dataset, reference)
        batch = _batch(dataset, plan, state, reference, notes)
    advance("end", 6, 6)
    subsets = _subsets(dataset, notes)
    sources = sorted(manifest.sources, key=lambda source: -source.counts.tokens)[:MOST_SOURCES]
    return Overview(
        location=dataset.location,
        facts=list(described(dataset, run, subsets)),
        manifest=msgspec.structs.replace(manifest, shards=[], rejected=[], sources=sources),
        view=view_facts(dataset),
        subsets=subsets,
        run=msgspec.structs.replace(run, row_digests=msgspec.UNSET) if run else None,
        num_sources=len(manifest.sources),
        rejected=_rejected_examples(dataset),
        lengths=analysis,
        length_bins=counts.bins(per_octave=4),
        vocabulary=use,
        plans=plans,
        comparison=comparison,
        batch=batch,
        documents=documents,
        spelled=_spelled(dataset, _shown_ids(documents, batch, use)),
        notes=notes,
    )


def _subsets(dataset: Dataset, notes: list[str]) -> dict[str, SubsetCounts]:
    if dataset.policies.read.validation and dataset.num_documents > MOST_COUNTED:
        notes.append("train and validation are not counted apart: tokenmill inspect counts them")
        return {}
    return count_subsets(dataset)


def _rejected_examples(dataset: Dataset) -> dict[str, list[RejectedRecord]]:
    """Some rejected records of each reason, the most frequent reason first."""
    counts = dataset.manifest.totals.rejected
    examples: dict[str, list[RejectedRecord]] = {
        reason: [] for reason in sorted(counts, key=lambda reason: -counts[reason])
    }
    for record in _rejected_records(dataset):
        found = examples.setdefault(record.reason, [])
        if len(found) < EXAMPLES:
            found.append(record)
    return examples


def _rejected_records(dataset: Dataset) -> Iterator[RejectedRecord]:
    left = MOST_REJECTED_BYTES
    for file in dataset.manifest.rejected:
        if dataset.origin is not None:
            dataset.origin.obtain([file])
        with (dataset.folder / file.name).open("rb") as lines:
            while left > 0 and (line := lines.readline(MOST_REJECTED_BYTES)):
                left -= len(line)
                try:
                    record = msgspec.json.decode(line, type=RejectedRecord)
                except msgspec.MsgspecError:  # damaged, or longer than was read
                    continue
                text = record.record or record.record_base64.decode(errors="backslashreplace")
                record.record, record.record_base64 = text[:EXAMPLE_CHARACTERS].strip(), b""
                yield record


def _lengths(dataset: Dataset, notes: list[str]) -> LengthCounts:
    found = sampled_lengths(dataset, MOST_DOCUMENTS)
    if not found.is_whole:
        notes.append(f"lengths were measured on {found.documents:,} documents, drawn evenly")
    return found.counts


def _plans(dataset: Dataset, plan: Plan | None, notes: list[str]) -> list[PlanOverview]:
    """The plans of the dataset, and the chosen one, which may lie elsewhere."""
    found = [plan] if plan else []
    others = (name for name in dataset.plans if not plan or name != plan.folder.name)
    for name in others:
        if len(found) == MOST_PLANS:
            notes.append(f"{len(dataset.plans) - MOST_PLANS} more plans are not shown")
            break
        found.append(open_plan(dataset, name))
    return [_plan(plan, notes) for plan in found]


def _plan(plan: Plan, notes: list[str]) -> PlanOverview:
    options = options_of_plan(plan.manifest.options, str(plan.folder))
    sizes, sums = sampled_plan(plan, MOST_SEQUENCES)
    if len(sums) < len(plan):
        looked = f"{counted(len(sums), 'sequence')}, drawn evenly"
        notes.append(f"segments and fill of the plan {plan.folder.name} were measured on {looked}")
    shares = np.minimum(sums * 20 // options.length, 19)
    return PlanOverview(
        name=plan.folder.name,
        plan_id=plan.manifest.plan_id,
        options=options,
        figures=figures_of(plan),
        segments=_segment_bins(sizes, options.length),
        fill=np.bincount(shares, minlength=20).tolist(),
    )


def _segment_bins(sizes: Int64Array, longest: int) -> list[Bin]:
    """Bins of segments; none is longer than a sequence."""
    if not len(sizes):
        return []
    bins = LengthCounts.of([sizes]).bins(per_octave=4)
    return [*bins[:-1], replace(bins[-1], high=min(bins[-1].high, longest))]


def _comparison(
    dataset: Dataset, plans: list[PlanOverview], analysis: Analysis, notes: list[str]
) -> StrategyComparison | None:
    """Compare strategies with the options of the first plan, or at the recommended length."""
    part = smaller(dataset, MOST_COMPARED)
    if part is None:
        notes.append("strategies are not compared here: tokenmill pack --compare does it")
        return None
    options = PackOptions(sequence_length=analysis.recommendation.sequence_length)
    if plans:
        options = plans[0].options
    documents = sum(shard.num_documents for shard in part.shards)
    if part is not dataset:
        notes.append(f"strategies are compared on {documents:,} documents, in whole shards")
    rows = compare(part, options, without=SLOW)
    packed = (row.figures.documents for row in rows if row.figures is not None)
    return StrategyComparison(options, next(packed, documents), rows)


def _vocabulary(dataset: Dataset, notes: list[str]) -> VocabularyUse:
    counts = token_histogram(dataset, MOST_TOKENS)
    tokens = int(counts.sum())
    if tokens < dataset.num_tokens:
        notes.append(f"the use of the vocabulary was counted in {tokens:,} tokens, drawn evenly")
    order = np.argsort(-counts, kind="stable")[:FREQUENT].tolist()
    frequent = [(token, int(counts[token])) for token in order if counts[token]]
    return VocabularyUse(tokens, token_figures(counts, len(counts)), frequent)


def _reference(dataset: Dataset, tokenizer: object, notes: list[str]) -> Reference | None:
    """The tokenizer to decode with; None for one in Python that was not given."""
    if tokenizer is None and KINDS[dataset.manifest.tokenizer.kind].is_described:
        notes.append("texts are not shown: give --tokenizer, the Python tokenizer of the dataset")
        return None
    return open_reference(dataset, tokenizer)


def _documents(dataset: Dataset, reference: Reference) -> list[DocumentView]:
    numbers = chosen_documents(dataset, SHOWN_DOCUMENTS)
    return [decoded_document(dataset, number, reference, SHOWN_TOKENS) for number in numbers]


def _batch(
    dataset: Dataset,
    plan: Plan | None,
    state: LoaderState | None,
    reference: Reference,
    notes: list[str],
) -> BatchView | None:
    """The next batch of a state, or the first one in the order of the default seed."""
    if plan is None and dataset.plans:
        plan = open_plan(dataset, dataset.plans[0])
    if plan is None or not len(plan):
        return None
    asked: dict[str, Any] = {"global_batch_size": min(SHOWN_ROWS, len(plan))}
    if len(plan.rows.row_lengths) > 1:
        asked = {"tokens_per_batch": SHOWN_ROWS * plan.rows.row_lengths[-1]}
    if state is not None:
        if state.order.shuffle is None or state.order.shares:
            notes.append("the batch of the state is not shown: it is of a mixture or a curriculum")
            return None
        size = state.global_batch
        asked = {"global_batch_size": size.rows, "tokens_per_batch": size.tokens}
        asked |= {"seed": state.seed, "shuffle": state.order.shuffle, "epochs": None}
    batches = open_batches(dataset, plan, rank=0, world_size=1, **asked)
    step = 0 if state is None else state.step
    whole = batches.global_batch(step)
    if whole is None:
        return None
    reader = RowReader(dataset, plan)
    chosen = whole.sequences[:SHOWN_ROWS].tolist()
    rows = [decoded_sequence(reader, sequence, reference) for sequence in chosen]
    steps = batches.schedule.num_steps if state is None else None
    return BatchView(plan.folder.name, step, steps, len(whole.sequences), rows)


def plan_of_state(dataset: Dataset, state: LoaderState) -> Plan:
    """The plan that a loader's state names.

    Raises:
        UserError: the state is of another dataset, or of a plan that is not there.
    """
    ids = [source.dataset for source in state.present]
    where = f"{dataset.location}, dataset {dataset.manifest.dataset_id}"
    if dataset.manifest.dataset_id not in ids:
        why = f"it names {', '.join(ids)}"
        raise UserError("the state belongs to another dataset", where=where, why=why)
    return open_source(state.present[ids.index(dataset.manifest.dataset_id)], [dataset])[1]


def _shown_ids(
    documents: Iterable[DocumentView], batch: BatchView | None, use: VocabularyUse
) -> set[int]:
    found = {token for view in documents for piece in view.pieces for token in piece.ids}
    for row in batch.rows if batch else ():
        found.update(token for part in row.segments for run in part.runs for token in run.ids)
    return found | {token for token, _ in use.frequent}


def _spelled(dataset: Dataset, ids: set[int]) -> dict[int, bytes]:
    tokens = tokens_of(stored_tokenizer(dataset)) or {}
    return {token: tokens[token].data for token in sorted(ids) if token in tokens}
