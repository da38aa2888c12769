"""Counts of plans: padding, attention keys per token, and waiting ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill.load.opening import open_batches
from tokenmill.pack.figures import Figures
from tokenmill.pack.options import Packing, PackOptions
from tokenmill.planning.packing import pack
from tokenmill.records import Advance, Int64Array
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

ALONE = "one document a row"
LONGEST = "the same, as long as the batch needs"


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan and the counts of its sequences."""

    plan: Plan
    figures: Figures
    costs: Int64Array
    """Shape (num_sequences,): sum of squared segment lengths."""
    sizes: Int64Array
    """Shape (num_sequences,): tokens that are not padding."""

    @property
    def row_tokens(self) -> Int64Array:
        """Shape (num_sequences,): tokens of each row, padding included."""
        return self.plan.rows.row_lengths_of(self.sizes)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of one packing."""

    packing: str
    rows: int
    padding: float
    """Share of the rows' tokens."""
    documents_cut: int
    avoidable_cuts: int
    keys_in_documents: float
    """Keys that a token attends to on average, if attention stays inside documents: the first of a
    document itself, the last all before it."""
    keys_in_rows: float
    """The same over whole rows, shared among the tokens that are not padding."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Attention cost of the rank that has the most over the mean of all, by step; 1 is even."""

    packing: str
    in_order_mean: float
    in_order_worst: float
    evenly_mean: float
    evenly_worst: float


def make_plans(
    dataset: Dataset,
    folder: Path,
    length: int,
    packings: Sequence[Packing],
    ranks: int,
    advance: Advance,
) -> dict[str, Planned]:
    """Plans by name: rows of one document each come first, then every packing.

    Raises:
        UserError: a strategy cannot meet the options.
    """
    alone = PackOptions(sequence_length=length, max_segments=1, ranks=ranks)
    asked = {ALONE: alone}
    for packing in packings:
        asked[packing] = PackOptions(sequence_length=length, packing=packing, ranks=ranks)
    plans = {}
    for number, (name, options) in enumerate(asked.items()):

        def tell(_: str, done: int, total: int, name: str = name) -> None:
            advance(f"plan {name}", done, total)

        report = pack(dataset, options, folder / f"plan-{number}", advance=tell)
        lengths = np.asarray(report.plan.lengths, np.int64)
        firsts = report.plan.offsets[:-1]
        plans[name] = Planned(
            report.plan,
            report.figures,
            costs=np.add.reduceat(lengths**2, firsts),
            sizes=np.add.reduceat(lengths, firsts),
        )
    return plans


def row_counts(plans: dict[str, Planned], rows_per_batch: int) -> Iterator[RowCounts]:
    """Counts of each plan, and of documents alone in batches no longer than their longest row."""
    for name, planned in plans.items():
        yield _counts(name, planned.figures, planned.row_tokens)
        if name == ALONE:
            yield _counts(LONGEST, planned.figures, longest_of_batches(planned, rows_per_batch))


def longest_of_batches(planned: Planned, rows: int) -> Int64Array:
    """Shape (num_sequences,): tokens of each row where batches are as long as they need be."""
    shuffled = np.random.default_rng(0).permutation(planned.sizes)
    firsts = np.arange(0, len(shuffled), rows)
    longest = np.maximum.reduceat(shuffled, firsts)
    return np.repeat(longest, np.diff([*firsts, len(shuffled)]))


def waiting(
    dataset: Dataset, name: str, planned: Planned, ranks: int, rows_per_rank: int
) -> Waiting | None:
    """How long ranks wait in an epoch; None if it has no complete step."""
    found: list[float] = []
    for even in (False, True):
        ratios = list(_imbalances(dataset, planned, ranks, rows_per_rank, even=even))
        if not ratios:
            return None
        found += [float(np.mean(ratios)), max(ratios)]
    return Waiting(name, *found)


def _imbalances(
    dataset: Dataset, planned: Planned, ranks: int, rows_per_rank: int, *, even: bool
) -> Iterator[float]:
    batches = open_batches(
        dataset,
        planned.plan,
        tokens_per_batch=rows_per_rank * planned.plan.rows.length,
        rank=0,
        world_size=ranks,
        even_attention=even,
    )
    for step in range(len(batches)):
        whole, rows_of_ranks = batches.rows_of_ranks(step)
        sums = planned.costs[whole.sequences][rows_of_ranks].sum(axis=1)
        yield float(sums.max() / sums.mean())


def _counts(name: str, figures: Figures, row_tokens: Int64Array) -> RowCounts:
    tokens = figures.tokens_in_sequences
    return RowCounts(
        packing=name,
        rows=len(row_tokens),
        padding=1 - tokens / int(row_tokens.sum()),
        documents_cut=figures.documents_cut,
        avoidable_cuts=figures.avoidable_cuts,
        keys_in_documents=figures.attention_cost / 2 / tokens,
        keys_in_rows=int((row_tokens**2).sum()) / 2 / tokens,
    )
