"""How plans are shown: the facts of one plan, and a table that compares strategies."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import msgspec
import numpy as np

from tokenmill.cli.tables import bar_room, fact_lines, table_lines, with_bar
from tokenmill.cli.terminal import fitted
from tokenmill.core.tables import Fact
from tokenmill.core.values import counted
from tokenmill.packing.comparison import Compared, recommended
from tokenmill.packing.planning import PlanReport
from tokenmill.packing.rest import REST_OF, RestOf
from tokenmill.packing.strategies import options_of_plan
from tokenmill.reports.plan_facts import (
    able_of,
    comparison_table,
    legend,
    plan_facts,
    recommendation,
)
from tokenmill.store.plan import Plan


def plan_lines(report: PlanReport, place: str = "", verbose: bool = False) -> list[str]:
    """A plan in plain words, or with all its figures. `place` replaces its folder if given."""
    plan, figures = report.plan, report.figures
    name = f"{place or plan.folder} (id {plan.manifest.plan_id})"
    options = options_of_plan(plan.manifest.options, str(plan.folder))
    facts = [("plan", name), *_rest_facts(plan), *plan_facts(options, figures, verbose=verbose)]
    with_bars = (
        (name, with_bar(text, figures.fill, 14) if name == "fill" else text) for name, text in facts
    )
    return fact_lines(with_bars, 12)


def _rest_facts(plan: Plan) -> Iterator[Fact]:
    """What a plan is the rest of, if it is one."""
    if REST_OF in plan.manifest.options:
        of = msgspec.convert(plan.manifest.options[REST_OF], RestOf)
        given = f"after {counted(sum(of.rows), 'sequence')} of epoch {of.epoch}"
        if not any(of.rows):
            given = f"all of epoch {of.epoch}, of which nothing was given yet"
        yield "rest of", f"{of.name}, {given}"


def comparison_lines(rows: list[Compared], ranks: int) -> list[str]:
    """A table of strategies sorted by row tokens, its legend, and a recommendation."""
    able, best = able_of(rows), recommended(rows)
    header, cells = comparison_table(able)
    longest = max((len(row.packing) for row, _ in able), default=0)
    shown = [
        [name, sequences, with_bar(fill, figures.fill, longest + 2), *others]
        for (name, sequences, fill, *others), (_, figures) in zip(cells, able, strict=True)
    ]
    lines = list(table_lines(header, shown, best.packing if best else ""))
    lines += [fitted(f"{row.packing}: {row.objection}") for row in rows if row.figures is None]
    return [
        *lines,
        "",
        *fact_lines(legend(rows, ranks), 11),
        "",
        *fact_lines(recommendation(rows), 11),
    ]


def plan_values(report: PlanReport, place: str = "") -> dict[str, object]:
    """The place, the id and the figures of a plan, for JSON."""
    options = report.plan.manifest.options
    return {
        "folder": place or os.fsencode(report.plan.folder).decode("utf-8", "replace"),
        "plan_id": report.plan.manifest.plan_id,
        "already_there": report.already_there,
        "figures": report.figures,
        **{name: options[name] for name in options if name == REST_OF},
    }


def sequence_pictures(plan: Plan, most: int = 12) -> list[str]:
    """Draw some sequences as bars on a terminal: one shade per segment, dots for padding."""
    lines: list[str] = []
    if not (width := bar_room(32, 64)):
        return lines
    length = plan.rows.length
    for sequence, segments in plan.some_rows(most).items():
        edges = np.cumsum([0, *segments]) * width / length
        edges = edges.clip(max=width)  # segments of a damaged plan can be longer than the row
        cells = ["·"] * width
        for number, (start, stop) in enumerate(itertools.pairwise(edges.round().astype(int))):
            cells[start:stop] = ["█▓▒░"[number % 4]] * (stop - start)
        lines.append(f"{sequence:>12}  {''.join(cells)}  {counted(len(segments), 'segment')}")
    return lines
