"""The facts of a plan and the comparison of strategies, for terminals and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tokenmill.core.tables import Cell, Fact, Table, known, number, table_of
from tokenmill.core.values import counted
from tokenmill.packing.comparison import Compared, recommended
from tokenmill.packing.figures import Figures
from tokenmill.packing.options import PackOptions

Able = tuple[Compared, Figures]
"""A strategy that can meet the options, and its figures."""


def plan_facts(options: PackOptions, figures: Figures, *, verbose: bool) -> Iterator[Fact]:
    """A plan in plain words, or with all its figures."""
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
    if avoidable := avoidable_cuts(figures):
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


def _more_figures(options: PackOptions, figures: Figures) -> Iterator[Fact]:
    mean = figures.segments / max(figures.sequences, 1)
    yield "segments", f"{mean:.2f} per sequence, at most {figures.most_segments}"
    yield "fill", f"{figures.fill:.4%}"
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
    share = figures.attention_cost / max(figures.row_tokens * options.length, 1)
    cost = f"sum of squared segment lengths {figures.attention_cost:,}"
    yield "attention", f"{cost}, {share:.1%} of that over whole rows"
    if figures.mean_imbalance is not None:
        mean_, worst = f"{figures.mean_imbalance:.3f}", f"{figures.worst_imbalance:.3f}"
        ranks = f"over {options.ranks} ranks"
        yield "imbalance", f"{ranks} {mean_} on average, {worst} at worst, in the order of the plan"
    lengths = f"lengths correlate by {figures.neighbour_length_correlation:+.3f}"
    sources = f"{figures.neighbour_source_share:.1%} begin in the same source"
    yield "neighbours", f"{lengths}, {sources}"


def able_of(rows: Sequence[Compared]) -> list[Able]:
    """The strategies that can meet the options, the one with the fewest row tokens first."""
    able = [(row, row.figures) for row in rows if row.figures is not None]
    return sorted(able, key=lambda pair: pair[1].row_tokens)


def comparison_table(able: Sequence[Able]) -> Table:
    """A row for each strategy."""
    columns: dict[str, Callable[[Able], Cell]] = {
        "strategy": lambda each: each[0].packing,
        "sequences": lambda each: number(each[1].sequences),
        "fill": lambda each: number(each[1].fill, "8.4%"),
        "cuts": lambda each: number(each[1].cuts),
        "avoidable": lambda each: number(avoidable_cuts(each[1])),
        "lost": lambda each: number(sum(each[1].lost_tokens.values())),
        "segments": lambda each: number(each[1].segments / max(each[1].sequences, 1)),
        "imbalance": lambda each: known(each[1].mean_imbalance, ".3f"),
        "gap": lambda each: known(each[0].gap, "+.4%"),
        "seconds": lambda each: number(each[0].seconds),
    }
    return table_of(columns, able)


def legend(rows: Sequence[Compared], ranks: int) -> Iterator[Fact]:
    """What the columns of the comparison mean."""
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


def recommendation(rows: Sequence[Compared]) -> Iterator[Fact]:
    """The recommended strategy, and what strategies with fewer row tokens would save and cost."""
    best = recommended(rows)
    if best is None or best.figures is None:
        return
    figures = best.figures
    lost, avoidable = sum(figures.lost_tokens.values()), avoidable_cuts(figures)
    harm = f"loses {counted(lost, 'token')}" if lost else "loses no token"
    cuts = f"makes {counted(avoidable, 'avoidable cut')}" if avoidable else "makes no avoidable cut"
    text = f"{best.packing}. It {harm}, {cuts}, and {1 - figures.fill:.2%} is padding."
    yield "recommended", text
    for row in rows:
        if row.figures is None or row.figures.row_tokens >= figures.row_tokens:
            continue
        saved = 1 - row.figures.row_tokens / figures.row_tokens
        more_cuts = avoidable_cuts(row.figures) - avoidable
        more_lost = sum(row.figures.lost_tokens.values()) - lost
        price = [counted(more_cuts, "more avoidable cut")] * (more_cuts > 0)
        price += [counted(more_lost, "more lost token")] * (more_lost > 0)
        price = price or [f"{row.seconds:.2f} seconds instead of {best.seconds:.2f}"]
        cost = " and ".join(price)
        yield "", f"{row.packing} takes {saved:.2%} fewer row tokens, for {cost}."


def avoidable_cuts(figures: Figures) -> int:
    """Cuts that no long document needs; a strategy that loses tokens can seem to need fewer."""
    return max(figures.avoidable_cuts, 0)
