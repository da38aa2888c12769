"""An overview of a dataset: the figures of a page, gathered once.

Counts come from the manifest and are exact. What would take longer for more documents comes from an
even sample (`reports/samples.py`), and `notes` says of how much.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.core.values import counted
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.token_bytes import tokens_of
from tokenmill.load.opening import open_batches
from tokenmill.load.rows.reader import RowReader
from tokenmill.load.state import LoaderState
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
from tokenmill.store.manifest import Audit, Counts, SourceEntry, TokenizerEntry
from tokenmill.store.plan import Plan, open_plan
from tokenmill.store.stored_reference import open_reference, stored_tokenizer

MOST_DOCUMENTS = 4_000_000
MOST_TOKENS = 4_000_000
MOST_SEQUENCES = 500_000
MOST_COMPARED = 200_000
"""Documents to compare strategies with: each packs all of them."""
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
    record_base64: str = ""

    @property
    def text(self) -> str:
        """The record as text; bytes that are none as escapes."""
        if self.record:
            return self.record
        try:
            return base64.b64decode(self.record_base64).decode(errors="backslashreplace")
        except ValueError:
            return self.record_base64


@dataclass(frozen=True, slots=True)
class Rejects:
    """Records that were rejected for the same reason."""

    reason: str
    records: int
    examples: list[RejectedRecord]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """How the dataset was built."""

    started: list[str]
    """The start of each attempt."""
    host: str
    engine: str
    versions: dict[str, str]
    seconds: dict[str, float]
    peak_bytes: int
    audited_documents: int
    audit: Audit | None


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

    sequence_length: int
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


@dataclass(frozen=True, slots=True)
class Overview:
    """A dataset as a whole: what it is, where it comes from, and how it can be trained on."""

    location: str
    dataset_id: str
    format_version: int
    view: ViewFacts | None
    """Where the documents of a view come from; None for a dataset."""
    totals: Counts
    subsets: dict[str, SubsetCounts]
    tokenizer: TokenizerEntry
    policies: dict[str, Any]
    num_shards: int
    run: RunFacts | None
    num_sources: int
    sources: list[SourceEntry]
    """The largest sources."""
    rejects: list[Rejects]
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


@dataclass(frozen=True, slots=True)
class Focus:
    """What to show of a dataset beside its own figures."""

    plan: Plan | None = None
    """The plan of the batch; by default the first one."""
    state: LoaderState | None = None
    """The state of a loader: its next batch is shown."""
    tokenizer: object = None
    """For datasets with a tokenizer in Python."""


def overview(dataset: Dataset, focus: Focus, advance: Advance) -> Overview:
    """Gather the figures of a dataset.

    Raises:
        UserError: the state or the tokenizer belongs to another dataset.
        VerificationError: a file of the dataset is damaged.
    """
    manifest, notes = dataset.manifest, list[str]()
    stages = iter(range(1, 7))

    def tell(stage: str) -> None:
        advance(stage, next(stages), 6)

    tell("lengths")
    counts = _lengths(dataset, notes)
    analysis = analysis_of(dataset.location, counts, _question())
    tell("plans")
    plans = _plans(dataset, focus, notes)
    tell("strategies")
    comparison = _comparison(dataset, plans, analysis, notes)
    tell("tokens")
    use = _vocabulary(dataset, notes)
    tell("documents and rows")
    reference = _reference(dataset, focus.tokenizer, notes)
    documents, batch = _texts(dataset, focus, reference, notes)
    tell("end")
    sources = sorted(manifest.sources, key=lambda source: -source.counts.tokens)
    return Overview(
        location=dataset.location,
        dataset_id=manifest.dataset_id,
        format_version=manifest.format_version,
        view=view_facts(dataset),
        totals=manifest.totals,
        subsets=_subsets(dataset, notes),
        tokenizer=manifest.tokenizer,
        policies=manifest.policies,
        num_shards=len(manifest.shards),
        run=_run(dataset),
        num_sources=len(sources),
        sources=sources[:MOST_SOURCES],
        rejects=_rejects(dataset),
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


def _question() -> Question:
    return Question(SEQUENCE_LENGTHS, named_shape(USUAL_SHAPE), Budget(TOKENS_PER_BATCH))


def _run(dataset: Dataset) -> RunFacts | None:
    run = run_if_kept(dataset)
    if run is None:
        return None
    return RunFacts(
        started=[attempt.started for attempt in run.attempts],
        host=run.host,
        engine=run.engine,
        versions=run.versions,
        seconds=run.seconds,
        peak_bytes=run.peak_bytes,
        audited_documents=run.audited_documents,
        audit=run.audit or None,
    )


def _subsets(dataset: Dataset, notes: list[str]) -> dict[str, SubsetCounts]:
    if dataset.policies.read.validation and dataset.num_documents > MOST_COUNTED:
        notes.append("train and validation are not counted apart: tokenmill inspect counts them")
        return {}
    return count_subsets(dataset)


def _rejects(dataset: Dataset) -> list[Rejects]:
    """Rejected records by reason, the most frequent first, each with some examples."""
    examples: dict[str, list[RejectedRecord]] = {}
    for record in _rejected_records(dataset):
        found = examples.setdefault(record.reason, [])
        if len(found) < EXAMPLES:
            found.append(record)
    counted_ = sorted(dataset.manifest.totals.rejected.items(), key=lambda pair: -pair[1])
    return [Rejects(reason, count, examples.get(reason, [])) for reason, count in counted_]


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
                record.record = record.text[:EXAMPLE_CHARACTERS].strip()
                record.record_base64 = ""
                yield record


def _lengths(dataset: Dataset, notes: list[str]) -> LengthCounts:
    found = sampled_lengths(dataset, MOST_DOCUMENTS)
    if not found.is_whole:
        notes.append(f"lengths are those of {found.documents:,} documents, drawn evenly")
    return found.counts


def _plans(dataset: Dataset, focus: Focus, notes: list[str]) -> list[PlanOverview]:
    """The plans of the dataset, and that of the focus if it lies elsewhere."""
    found = [focus.plan] if focus.plan else []
    others = (name for name in dataset.plans if not focus.plan or name != focus.plan.folder.name)
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
        notes.append(f"segments and fill of the plan {plan.folder.name} are those of {looked}")
    shares = np.minimum(sums * 20 // options.length, 19)
    return PlanOverview(
        name=plan.folder.name,
        plan_id=plan.manifest.plan_id,
        options=options,
        figures=figures_of(plan),
        segments=LengthCounts.of([sizes]).bins(per_octave=4) if len(plan) else [],
        fill=np.bincount(shares, minlength=20).tolist(),
    )


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
    return StrategyComparison(options.length, documents, compare(part, options))


def _vocabulary(dataset: Dataset, notes: list[str]) -> VocabularyUse:
    counts = token_histogram(dataset, MOST_TOKENS)
    tokens = int(counts.sum())
    if tokens < dataset.num_tokens:
        notes.append(f"use of the vocabulary is that of {tokens:,} tokens, drawn evenly")
    order = np.argsort(-counts, kind="stable")[:FREQUENT].tolist()
    frequent = [(token, int(counts[token])) for token in order if counts[token]]
    return VocabularyUse(tokens, token_figures(counts, len(counts)), frequent)


def _reference(dataset: Dataset, tokenizer: object, notes: list[str]) -> Reference | None:
    """The tokenizer to decode with; None for one in Python that was not given."""
    if tokenizer is None and KINDS[dataset.manifest.tokenizer.kind].is_described:
        notes.append("texts are not shown: give --tokenizer, the Python tokenizer of the dataset")
        return None
    return open_reference(dataset, tokenizer)


def _texts(
    dataset: Dataset, focus: Focus, reference: Reference | None, notes: list[str]
) -> tuple[list[DocumentView], BatchView | None]:
    """Some documents, and the rows of a batch."""
    if reference is None:
        return [], None
    documents = [
        decoded_document(dataset, number, reference, SHOWN_TOKENS)
        for number in chosen_documents(dataset, SHOWN_DOCUMENTS)
    ]
    return documents, _batch(dataset, focus, reference, notes)


def _batch(
    dataset: Dataset, focus: Focus, reference: Reference, notes: list[str]
) -> BatchView | None:
    """The next batch of a state, or the first one in the order of the default seed."""
    plan, state = focus.plan, focus.state
    if plan is None and dataset.plans:
        plan = open_plan(dataset, dataset.plans[0])
    if plan is None or not len(plan):
        return None
    asked: dict[str, Any] = {"global_batch_size": min(SHOWN_ROWS, len(plan))}
    if len(plan.rows.row_lengths) > 1:
        asked = {"tokens_per_batch": SHOWN_ROWS * plan.rows.row_lengths[-1]}
    if state is not None:
        if set(state.order) != {"shuffle"}:
            notes.append("the batch of the state is not shown: it is of a mixture or a curriculum")
            return None
        size = state.global_batch
        asked = {"global_batch_size": size["rows"], "tokens_per_batch": size["tokens"]}
        asked |= {"seed": state.seed, "shuffle": state.order["shuffle"], "epochs": None}
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
    ids = [source["dataset"] for source in state.sources]
    where = f"{dataset.location}, dataset {dataset.manifest.dataset_id}"
    if dataset.manifest.dataset_id not in ids:
        why = f"it names {', '.join(ids)}"
        raise UserError("the state belongs to another dataset", where=where, why=why)
    wanted = state.sources[ids.index(dataset.manifest.dataset_id)]["plan"]
    for name in dataset.plans:
        plan = open_plan(dataset, name)
        if plan.manifest.plan_id == wanted:
            return plan
    hint = "pack it again with the same options, or give the state with the folder of the plan"
    raise UserError("the dataset lacks the plan of the state", where=where, why=wanted, hint=hint)


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
