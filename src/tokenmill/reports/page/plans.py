"""Sections about plans: strategies against each other, and each plan of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.core.html import Html, about, facts, pair, section, table, text
from tokenmill.core.tables import number, percent
from tokenmill.packing.comparison import recommended
from tokenmill.reports.overview import SLOW, PlanOverview, StrategyComparison
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes
from tokenmill.reports.plan_facts import (
    able_of,
    avoidable_cuts,
    comparison_table,
    legend,
    plan_facts,
    recommendation,
)


def strategies_section(comparison: StrategyComparison) -> Html:
    """All strategies with the same options, and which one to take."""
    rows, able = comparison.rows, able_of(comparison.rows)
    best = recommended(rows)
    name = best.packing if best else ""
    subset = f" of the subset {comparison.options.subset}" if comparison.options.subset else ""
    padding = [(row.packing, percent(1 - figures.fill)) for row, figures in able]
    cuts = [(row.packing, number(avoidable_cuts(figures))) for row, figures in able]
    return section(
        "Which strategy",
        about(
            f"All strategies with rows of {comparison.options.length:,} tokens, on "
            f"{comparison.documents:,} documents{subset}. tokenmill pack --compare has other "
            f"lengths, and {' and '.join(SLOW)}, which takes long."
        ),
        facts(recommendation(rows)),
        pair(
            charts.bars("Padding", padding, Axes("share of row tokens", xshare=True), name),
            charts.bars("Avoidable cuts", cuts, Axes("cuts"), name),
        ),
        table(*comparison_table(able)),
        *(about(f"{row.packing}: {row.objection}.") for row in rows if row.figures is None),
        facts(legend(rows, comparison.options.ranks)),
    )


def plans_section(plans: Sequence[PlanOverview]) -> Html:
    """Each plan with its figures."""
    lead = about(
        "A plan says which part of which document is in which sequence. Its figures count the "
        "whole plan."
    )
    return section("Plans", lead, *(part for plan in plans for part in _plan(plan)))


def _plan(plan: PlanOverview) -> Iterator[Html]:
    yield text("h3", plan.name)
    yield facts([("id", plan.plan_id), *plan_facts(plan.options, plan.figures, verbose=True)])
    steps = [
        (f"{5 * at} to {5 * at + 5}%", number(count)) for at, count in enumerate(plan.fill) if count
    ]
    if steps:
        yield pair(
            charts.histogram(
                "Lengths of segments", plan.segments, "segments", "tokens in a segment"
            ),
            charts.bars("Sequences by how full they are", steps, Axes("sequences")),
        )
