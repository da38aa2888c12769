"""Sections about document lengths and sequence lengths: of an analysis, or of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.core.html import Html, element, escaped, facts, section, table
from tokenmill.reports.lengths.analysis import Analysis
from tokenmill.reports.lengths.counts import Bin
from tokenmill.reports.lengths.tables import (
    corpus_facts,
    cost_table,
    model_facts,
    notes,
    percentile_table,
    row_table,
)
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes, Point

MARKED = (50, 90, 99)
"""Percentiles that a chart names."""


def analysis_page(found: Analysis) -> list[Html]:
    """The parts of the page of an analysis."""
    head = [
        element("h1", escaped(f"Document lengths of {found.corpus}")),
        facts(corpus_facts(found)),
    ]
    return [*head, *length_sections(found, found.histogram)]


def length_sections(found: Analysis, bins: Sequence[Bin]) -> Iterator[Html]:
    """Lengths of documents, and what each sequence length does to them."""
    marks = [
        (found.percentiles[share], f"{share} %: {found.percentiles[share]:,}") for share in MARKED
    ]
    of_tokens = [
        (found.token_percentiles[share], f"{share} %: {found.token_percentiles[share]:,}")
        for share in MARKED
    ]
    yield section(
        "Lengths of documents",
        element(
            "div",
            charts.histogram(
                "Share of documents", bins, "documents", "tokens in a document", marks
            ),
            charts.histogram("Share of tokens", bins, "tokens", "tokens in a document", of_tokens),
            class_="pair",
        ),
        table(*percentile_table(found)),
        about="Lengths are in tokens, with the tokens that begin and end a document. Half of the "
        f"documents have at most {found.percentiles[50]:,} tokens; half of the tokens are in "
        f"documents of at most {found.token_percentiles[50]:,}.",
    )
    yield section(
        "Which sequence length",
        *_advice(found),
        element("div", *_length_charts(found), class_="pair"),
        table(*row_table(found)),
        table(*cost_table(found)),
        facts([*model_facts(found), *notes(found)]),
        about="A longer sequence cuts fewer documents and costs more attention. Packing fills the "
        "rows; without it, most of a row would be padding.",
    )


def _advice(found: Analysis) -> Iterator[Html]:
    advice = found.recommendation
    yield element("p", element("strong", escaped(f"Recommended: {advice.headline}.")))
    yield element("ul", *(element("li", escaped(f"{reason}.")) for reason in advice.reasons))


def _length_charts(found: Analysis) -> Iterator[Html]:
    advice = found.recommendation
    marks = [(advice.sequence_length, "recommended")] if advice.fits else []
    axes = Axes("sequence length", "share", xlog=True, yshare=True)
    points = [
        point
        for row in found.rows
        for point in (
            Point(row.sequence_length, row.cut_share, "documents cut"),
            Point(row.sequence_length, row.cut_token_share, "tokens in cut documents"),
            Point(row.sequence_length, 1 - row.fill, "padding"),
        )
    ]
    yield charts.lines("What is cut, and what is padding", points, axes, marks)
    costs = [
        point
        for cost in found.costs
        for point in (
            Point(cost.sequence_length, cost.masked_attention_flops, "inside documents"),
            Point(cost.sequence_length, cost.dense_attention_flops, "over whole rows"),
        )
    ]
    log = Axes("sequence length", "FLOPs of attention in an epoch", xlog=True, ylog=True)
    yield charts.lines("What attention costs", costs, log, marks)
