"""How plans are shown: the facts of one plan, and a table that compares strategies."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import numpy as np

from tokenmill.cli.tables import bar_room, fact_lines, table_lines, with_bar
from tokenmill.cli.terminal import fitted
from tokenmill.core.values import counted
from tokenmill.packing.comparison import Compared, recommended
from tokenmill.packing.figures import Figures
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import PlanReport
from tokenmill.packing.strategies import options_of_plan
from tokenmill.store.plan import Plan


def plan_lines(report: PlanReport, place: str = "", verbose: bool = False) -> list[str]:
    """A plan in plain words, or with all its figures. `place` replaces its folder if given."""
    plan, figures = report.plan, report.figures
    name = f"{place or plan.folder} (id {plan.manifest.plan_id})"
    options = options_of_plan(plan.manifest.options, str(plan.folder))
    return fact_lines([("plan", name), *_facts(options, figures, verbose)], 12)


def _facts(options: PackOptions, figures: Figures, verbose: bool) -> Iterator[tuple[str, str]]:
    if verbose:
        yield "strategy", f"{options.packing}, long documents: {options.long_documents}"
    yield "documents", f"{figures.documents:,} with {counted(figures.tokens, 'token')}"
    for reason, count in figures.left_out_documents.items():
        tokens = figures.left_out_tokens[reason]
        left_out = f"{counted(count, 'document')} with {counted(tokens, 'token')}"
        yield "left out", f"{left_out}: {reason}"
    full = f"{figures.fill:.2%} full; {counted(figures.padding, 'token')} of padding"
    yield "sequences", f"{figures.sequences:,} of {options.length:,} tokens, {full}"
    cut = f"{counted(figures.documents_cut, 'document')} in {counted(figures.cuts, 'place')}"
    if avoidable := _avoidable(figures):
        yield "cut", f"{cut}; {avoidable:,} of these cuts could be avoided (see --compare)"
    else:
        why = "only documents longer than a sequence are cut"
        yield "cut", f"{cut}; {why}" if figures.cuts else "no document"
    for reason, tokens in figures.lost_tokens.items():
        documents = figures.lost_documents[reason]
        lost = f"{counted(tokens, 'token')} of {counted(documents, 'document')}"
        yield "lost", f"{lost}: {reason}"
    if figures.repeated_tokens:
        yield "repeated", f"{counted(figures.repeated_tokens, 'token')}, because windows overlap"
    if figures.tokens_set_at_cuts:
        yield "set at cuts", counted(figures.tokens_set_at_cuts, "token")
    if verbose:
        yield from _more_figures(options, figures)


def _more_figures(options: PackOptions, figures: Figures) -> Iterator[tuple[str, str]]:
    mean = figures.segments / max(figures.sequences, 1)
    yield "segments", f"{mean:.2f} per sequence, at most {figures.most_segments}"
    yield "fill", with_bar(f"{figures.fill:.4%}", figures.fill, 14)
    if options.reserve:
        yield "reserved", f"{options.reserve} places per segment, padding until they are used"
    if figures.lower_bound is not None:
        bound = f"at least {figures.lower_bound:,} sequences"
        yield "bound", f"{bound} (this plan: {figures.gap:+.4%})"
    if figures.planned_globally is not None:
        more = figures.sequences - figures.planned_globally
        share = more / max(figures.sequences, 1)
        padding = f"{more:,} sequences ({share:.4%} padding)"
        yield "locality", f"costs {padding} compared to a single window"
    yield "attention", f"sum of squared segment lengths {figures.attention_cost:,}"
    if figures.mean_imbalance is not None:
        mean_, worst = f"{figures.mean_imbalance:.3f}", f"{figures.worst_imbalance:.3f}"
        ranks = f"over {options.ranks} ranks"
        yield "imbalance", f"{ranks} {mean_} on average, {worst} at worst, in the order of the plan"
    lengths = f"lengths correlate by {figures.neighbour_length_correlation:+.3f}"
    sources = f"{figures.neighbour_source_share:.1%} begin in the same source"
    yield "neighbours", f"{lengths}, {sources}"


def comparison_lines(rows: list[Compared], ranks: int) -> list[str]:
    """A table of strategies sorted by row tokens, its legend, and a recommendation."""
    able = [(row, row.figures) for row in rows if row.figures is not None]
    able.sort(key=lambda pair: pair[1].row_tokens)
    header = ["strategy", "sequences", "fill", "cuts", "avoidable", "lost", "segments", "imbalance"]
    header += ["gap", "seconds"]
    longest = max((len(row.packing) for row, _ in able), default=0)
    cells = [
        [
            row.packing,
            f"{figures.sequences:,}",
            with_bar(f"{figures.fill:8.4%}", figures.fill, longest + 2),
            f"{figures.cuts:,}",
            f"{_avoidable(figures):,}",
            f"{sum(figures.lost_tokens.values()):,}",
            f"{figures.segments / max(figures.sequences, 1):.2f}",
            "-" if figures.mean_imbalance is None else f"{figures.mean_imbalance:.3f}",
            "-" if row.gap is None else f"{row.gap:+.4%}",
            f"{row.seconds:.2f}",
        ]
        for row, figures in able
    ]
    best = recommended(rows)
    lines = list(table_lines(header, cells, best.packing if best else ""))
    lines += [fitted(f"{row.packing}: {row.objection}") for row in rows if row.figures is None]
    legend, advice = fact_lines(_legend(rows, ranks), 11), fact_lines(_recommendation(rows), 11)
    return [*lines, "", *legend, "", *advice]


def _legend(rows: list[Compared], ranks: int) -> Iterator[tuple[str, str]]:
    yield "fill", "share of row tokens that are not padding"
    yield "cuts", "places where a document is cut and continues in another segment"
    yield "avoidable", "cuts beyond the minimum for documents longer than a sequence"
    yield "lost", "tokens that are in no sequence"
    yield "segments", "documents or parts of documents per sequence, on average"
    yield "imbalance", f"highest attention cost of {ranks} ranks divided by the mean, per step"
    bound = next((row.bound for row in rows if row.bound is not None), None)
    if bound is not None:
        least = f"{bound:,} sequences, the least without avoidable cuts"
        yield "gap", f"row tokens compared to {least}; only avoidable cuts can make it negative"


def _recommendation(rows: list[Compared]) -> Iterator[tuple[str, str]]:
    """The recommended strategy, and what strategies with fewer row tokens would save and cost."""
    best = recommended(rows)
    if best is None or best.figures is None:
        return
    figures = best.figures
    lost, avoidable = sum(figures.lost_tokens.values()), _avoidable(figures)
    harm = f"loses {counted(lost, 'token')}" if lost else "loses no token"
    cuts = f"makes {counted(avoidable, 'avoidable cut')}" if avoidable else "makes no avoidable cut"
    text = f"{best.packing}. It {harm}, {cuts}, and {1 - figures.fill:.2%} is padding."
    yield "recommended", text
    for row in rows:
        if row.figures is None or row.figures.row_tokens >= figures.row_tokens:
            continue
        saved = 1 - row.figures.row_tokens / figures.row_tokens
        more_cuts = _avoidable(row.figures) - avoidable
        more_lost = sum(row.figures.lost_tokens.values()) - lost
        price = [counted(more_cuts, "more avoidable cut")] * (more_cuts > 0)
        price += [counted(more_lost, "more lost token")] * (more_lost > 0)
        price = price or [f"{row.seconds:.2f} seconds instead of {best.seconds:.2f}"]
        cost = " and ".join(price)
        yield "", f"{row.packing} takes {saved:.2%} fewer row tokens, for {cost}."


def _avoidable(figures: Figures) -> int:
    return max(figures.avoidable_cuts, 0)


def plan_values(report: PlanReport, place: str = "") -> dict[str, object]:
    """The place, the id and the figures of a plan, for JSON."""
    return {
        "folder": place or os.fsencode(report.plan.folder).decode("utf-8", "replace"),
        "plan_id": report.plan.manifest.plan_id,
        "already_there": report.already_there,
        "figures": report.figures,
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
