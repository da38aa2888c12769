"""Recommend a sequence length, with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenmill.core.values import counted, size_text
from tokenmill.packing.costs import ModelShape
from tokenmill.reports.lengths.figures import CostFigures, RowFigures

Rows = Sequence[RowFigures]
Costs = Sequence[CostFigures]
MOST_CUT = 0.05
"""The largest share of documents that the recommended length may cut."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A recommended sequence length, with the reasons for it."""

    sequence_length: int
    reasons: list[str]
    fits: bool = True
    """False if no row of any length fits into the memory for activations: none is recommended."""

    def is_for(self, length: int) -> bool:
        """Whether a length is recommended."""
        return self.fits and length == self.sequence_length

    @property
    def headline(self) -> str:
        """The length as part of a sentence, or that none is recommended."""
        length = f"sequences of {self.sequence_length:,} tokens"
        none = "none, because no length fits into the memory for activations"
        return length if self.fits else f"{none}; {length} come closest"


def recommend(rows: Rows, costs: Costs, shape: ModelShape) -> Recommendation:
    """Recommend the shortest length that cuts at most 5 % of the documents, or else the longest.

    Lengths beyond a model's learned positions, and those of which no row fits into the memory for
    activations, are ignored, unless there are no others. Both lists are sorted by length.
    """
    within = [
        number
        for number, each in enumerate(rows)
        if not shape.num_positions or each.sequence_length <= shape.num_positions
    ]
    able = [number for number in within if costs[number].rows_that_fit != 0] or within[:1]
    enough = [number for number in able if rows[number].cut_share <= MOST_CUT]
    chosen = enough[0] if enough else (able[-1] if able else 0)
    reasons = [
        *_choice(rows, costs, chosen, is_enough=bool(enough)),
        *_positions(rows, within, shape),
        *_too_large([costs[number] for number in within]),
        *_neighbours(rows, costs, chosen, able),
        *_packing(rows[chosen]),
        *_memory(costs, chosen, shape),
        *_batches(costs[chosen]),
    ]
    fits = costs[chosen].rows_that_fit != 0
    return Recommendation(rows[chosen].sequence_length, reasons, fits)


def _choice(rows: Rows, costs: Costs, chosen: int, *, is_enough: bool) -> Iterator[str]:
    row = rows[chosen]
    cut = f"{row.cut_share:.1%} of the documents, with {row.cut_token_share:.1%} of the tokens"
    if costs[chosen].rows_that_fit == 0:
        yield f"{row.sequence_length:,} needs the least memory of these lengths: it cuts {cut}"
        return
    if not is_enough:
        which = "that fits" if any(cost.rows_that_fit == 0 for cost in costs) else "considered"
        yield (
            f"every length {which} cuts more than {MOST_CUT:.0%} of the documents; "
            f"{row.sequence_length:,} cuts the fewest: {cut}"
        )
        return
    yield (
        f"{row.sequence_length:,} is the shortest of these lengths that cuts at most "
        f"{MOST_CUT:.0%} of the documents: it cuts {cut}"
    )


def _positions(rows: Rows, within: Sequence[int], shape: ModelShape) -> Iterator[str]:
    if len(within) == len(rows):
        return
    if within:
        yield f"{shape.name} has {shape.num_positions:,} learned positions; longer rows do not fit"
    else:
        yield (
            f"{shape.name} has {shape.num_positions:,} learned positions, fewer than the shortest "
            "of these lengths; try shorter ones"
        )


def _too_large(costs: Costs) -> Iterator[str]:
    """Say from which length on no row fits into the memory for activations, if others fit."""
    too_large = [cost for cost in costs if cost.rows_that_fit == 0]
    if 0 < len(too_large) < len(costs):
        cost = too_large[0]
        needed = size_text(cost.activation_bytes + (cost.logit_bytes or 0))
        yield (
            f"a row of {cost.sequence_length:,} tokens needs {needed}, which does not fit into the "
            "memory for activations"
        )


def _neighbours(rows: Rows, costs: Costs, chosen: int, able: Sequence[int]) -> Iterator[str]:
    """Say what the next shorter and the next longer length would change."""
    this, cost = rows[chosen], costs[chosen]
    for number in (chosen - 1, chosen + 1):
        if number not in able:
            continue
        other = rows[number]
        ratio = costs[number].masked_attention_flops / max(cost.masked_attention_flops, 1)
        dense = costs[number].dense_attention_flops / max(cost.dense_attention_flops, 1)
        yield (
            f"{other.sequence_length:,} would cut {other.cut_share:.1%} of the documents; "
            f"{other.from_start_share:.1%} of the tokens would see their document from its start "
            f"({this.from_start_share:.1%} with {this.sequence_length:,}); attention would take "
            f"{ratio:.2f} times the FLOPs inside documents, and {dense:.2f} times over whole rows"
        )


def _packing(row: RowFigures) -> Iterator[str]:
    yield (
        f"with best-fit packing, {1 - row.fill:.2%} of the rows is padding; with one document per "
        f"row, {1 - row.padded_fill:.1%} is, and there are "
        f"{row.padded_sequences / row.sequences:.1f} times as many rows"
    )
    yield (
        f"attention inside documents takes {row.attention_share:.0%} of the FLOPs of attention "
        "over whole rows"
    )


def _memory(costs: Costs, chosen: int, shape: ModelShape) -> Iterator[str]:
    cost = costs[chosen]
    ratio = cost.score_bytes / cost.activation_bytes
    yield (
        f"for {shape.name}, a row needs {size_text(cost.activation_bytes)} for activations; a "
        f"kernel that stores attention scores adds {size_text(cost.score_bytes)} "
        f"({ratio:.1f} times as much), and four times that at twice the length"
    )


def _batches(cost: CostFigures) -> Iterator[str]:
    yield (
        f"a batch of {cost.batch_rows * cost.sequence_length:,} tokens is "
        f"{counted(cost.batch_rows, 'row')} with {cost.batch_documents:,.0f} documents or parts "
        f"of them; an epoch has {counted(cost.steps, 'step')}. If you double the length, halve "
        "the rows: the tokens and activations of a batch stay the same, and only attention grows"
    )
    if cost.rows_that_fit == 0:
        yield (
            "not even one row fits into the memory for activations: use a shorter length, "
            f"checkpoint activations ({size_text(cost.checkpointed_bytes)} per row), or split rows "
            "across devices"
        )
    elif cost.rows_that_fit:
        yield (
            f"the memory for activations holds {counted(cost.rows_that_fit, 'row')}: one device "
            f"needs {counted(cost.accumulation_steps or 1, 'gradient accumulation step')} a batch"
        )
