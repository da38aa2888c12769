"""Sections about document lengths and sequence lengths: of an analysis, or of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tokenmill.core.charts import Point
from tokenmill.core.html import Html, about, element, facts, listed, pair, section, table, text
from tokenmill.reports.lengths.analysis import Analysis
from tokenmill.reports.lengths.counts import Bin
from tokenmill.reports.lengths.figures import CostFigures, RowFigures
from tokenmill.reports.lengths.tables import (
    cost_table,
    model_facts,
    notes,
    percentile_table,
    row_table,
)
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes

F = TypeVar("F", RowFigures, CostFigures)
MARKED = (50, 90, 99)
"""Percentiles that a chart names."""


def analysis_page(found: Analysis) -> list[Html]:
    """The parts of the page of an analysis."""
    title = text("h1", f"Document lengths of {found.corpus}")
    return [title, facts(found.facts()), *length_sections(found, found.histogram)]


def length_sections(found: Analysis, bins: Sequence[Bin]) -> Iterator[Html]:
    """Lengths of documents, and what each sequence length does to them."""
    kinds = {"documents": found.percentiles, "tokens": found.token_percentiles}
    yield section(
        "Lengths of documents",
        about(
            "Lengths are in tokens, with the tokens that begin and end a document; documents that "
            "are held out for validation are among them. Half of the "
            f"documents have at most {found.percentiles[50]:,} tokens; half of the tokens are in "
            f"documents of at most {found.token_percentiles[50]:,}."
        ),
        pair(
            *(
                charts.histogram(
                    f"Share of {unit}", bins, unit, "tokens in a document", _marks(shares)
                )
                for unit, shares in kinds.items()
            )
        ),
        table(*percentile_table(found)),
    )
    yield section(
        "Which sequence length",
        about(
            "A longer sequence cuts fewer documents and costs more attention. Packing fills the "
            "rows; without it, most of a row would be padding."
        ),
        element("p", text("strong", f"Recommended: {found.recommendation.headline}.")),
        listed(found.recommendation.reasons),
        pair(*_length_charts(found)),
        table(*row_table(found)),
        table(*cost_table(found)),
        facts([*model_facts(found), *notes(found)]),
    )


def _marks(percentiles: dict[int, int]) -> charts.Marks:
    return [(percentiles[share], f"{share}%: {percentiles[share]:,}") for share in MARKED]


def _length_charts(found: Analysis) -> Iterator[Html]:
    advice = found.recommendation
    marks = [(advice.sequence_length, "recommended")] if advice.fits else []
    lengths = tuple(row.sequence_length for row in found.rows)
    axes = Axes("sequence length", "share", xlog=True, yshare=True, xticks=lengths)
    shares = _by_length(
        found.rows,
        {
            "documents cut": lambda row: row.cut_share,
            "tokens in cut documents": lambda row: row.cut_token_share,
            "padding": lambda row: 1 - row.fill,
        },
    )
    yield charts.points("lines", "What is cut, and what is padding", shares, axes, marks)
    costs = _by_length(
        found.costs,
        {
            "inside documents": lambda cost: cost.masked_attention_flops,
            "over whole rows": lambda cost: cost.dense_attention_flops,
        },
    )
    log = replace(axes, y="FLOPs of attention in an epoch", ylog=True, yshare=False)
    yield charts.points("lines", "What attention costs", costs, log, marks)


def _by_length(items: Iterable[F], lines: Mapping[str, Callable[[F], float]]) -> list[Point]:
    """A point on each line for the figures of each sequence length."""
    return [
        (name, item.sequence_length, value(item)) for item in items for name, value in lines.items()
    ]
