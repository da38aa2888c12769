"""Sections about plans: strategies against each other, and each plan of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.core.html import Html, element, escaped, facts, section, table
from tokenmill.core.tables import Cell, number, percent
from tokenmill.core.values import counted
from tokenmill.packing.comparison import Compared, recommended
from tokenmill.packing.figures import Figures
from tokenmill.reports.overview import PlanOverview, StrategyComparison
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes, Bar

HEADER = (
    *("strategy", "sequences", "against the bound", "padding", "documents cut", "cuts"),
    *("avoidable", "tokens lost", "attention", "imbalance"),
)


def strategies_section(comparison: StrategyComparison) -> Html:
    """All strategies with the same options, and which one to take."""
    best = recommended(comparison.rows)
    able = [(row, row.figures) for row in comparison.rows if row.figures is not None]
    able.sort(key=lambda pair: pair[1].row_tokens)
    names = {row.packing: row.packing for row, _ in able}
    if best is not None:
        names[best.packing] += " (recommended)"
    padding = [
        Bar(names[row.packing], 1 - figures.fill, f"{1 - figures.fill:.2%}", row is best)
        for row, figures in able
    ]
    avoidable = [(row, max(figures.avoidable_cuts, 0)) for row, figures in able]
    cuts = [Bar(names[row.packing], count, f"{count:,}", row is best) for row, count in avoidable]
    unable = [
        element("p", escaped(f"{row.packing}: {row.objection}."), class_="about")
        for row in comparison.rows
        if row.figures is None
    ]
    advice = "every strategy loses tokens"
    if best is not None:
        advice = (
            f"{best.packing} is recommended: of the strategies that lose and cut the least, it "
            "makes the fewest rows"
        )
    return section(
        "Which strategy",
        element("p", element("strong", escaped(f"{advice[0].upper()}{advice[1:]}."))),
        element(
            "div",
            charts.bars("Padding", padding, Axes("share of row tokens", xshare=True)),
            charts.bars("Avoidable cuts", cuts, Axes("cuts")),
            class_="pair",
        ),
        table(
            HEADER, [_strategy(row, figures, comparison.sequence_length) for row, figures in able]
        ),
        *unable,
        about=f"All strategies with rows of {comparison.sequence_length:,} tokens, on "
        f"{comparison.documents:,} documents. The bound is the fewest sequences that hold these "
        "documents without an avoidable cut. Attention is that inside documents, as a share of "
        "attention over whole rows; imbalance is that of the busiest rank by the mean.",
    )


def _strategy(row: Compared, figures: Figures, length: int) -> list[Cell]:
    return [
        row.packing,
        number(figures.sequences),
        "-" if row.gap is None else percent(row.gap, 3),
        percent(1 - figures.fill),
        number(figures.documents_cut),
        number(figures.cuts),
        number(max(figures.avoidable_cuts, 0)),
        number(sum(figures.lost_tokens.values())),
        percent(_attention(figures, length), 1),
        "-" if figures.mean_imbalance is None else number(figures.mean_imbalance),
    ]


def _attention(figures: Figures, length: int) -> float:
    """Attention inside documents, as a share of that over whole rows of `length` tokens."""
    return figures.attention_cost / max(figures.row_tokens * length, 1)


def plans_section(plans: Sequence[PlanOverview]) -> Html:
    """Each plan with its figures."""
    about = (
        "A plan says which part of which document is in which sequence. Its figures count the "
        "whole plan."
    )
    return section("Plans", *(part for plan in plans for part in _plan(plan)), about=about)


def _plan(plan: PlanOverview) -> Iterator[Html]:
    figures, options = plan.figures, plan.options
    bound = "no bound is known"
    if figures.lower_bound:
        bound = f"{figures.lower_bound:,} sequences at least, {figures.gap:+.3%} in this plan"
    lost = sum(figures.lost_tokens.values())
    left_out = sum(figures.left_out_documents.values())
    yield element("h3", escaped(plan.name))
    yield facts(
        [
            ("id", plan.plan_id),
            ("strategy", f"{options.packing}, long documents: {options.long_documents}"),
            (
                "sequences",
                f"{figures.sequences:,} of {options.length:,} tokens, "
                f"{figures.segments / max(figures.sequences, 1):.2f} segments each",
            ),
            ("fill", f"{figures.fill:.3%}; {counted(figures.padding, 'token')} of padding"),
            ("bound", bound),
            (
                "cut",
                f"{counted(figures.documents_cut, 'document')} in {figures.cuts:,} places, "
                f"{max(figures.avoidable_cuts, 0):,} of them avoidable",
            ),
            ("lost", f"{counted(lost, 'token')}"),
            ("left out", f"{counted(left_out, 'document')}"),
            (
                "attention",
                f"inside documents: {_attention(figures, options.length):.1%} of whole rows",
            ),
        ]
    )
    steps = [
        Bar(f"{5 * at} to {5 * at + 5} %", count, f"{count:,}")
        for at, count in enumerate(plan.fill)
        if count
    ]
    yield element(
        "div",
        charts.histogram("Lengths of segments", plan.segments, "segments", "tokens in a segment")
        if plan.segments
        else Html(""),
        charts.bars("Sequences by how full they are", steps, Axes("sequences")),
        class_="pair",
    )
