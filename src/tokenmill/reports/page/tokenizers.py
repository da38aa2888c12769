"""The page of a report on tokenizers: what each makes of the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.core.html import Html, about, element, facts, listed, pair, section, table, text
from tokenmill.core.tables import Number, number
from tokenmill.core.values import counted
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes
from tokenmill.reports.tokenizers.report import Report, TokenizerReport, short_names
from tokenmill.reports.tokenizers.tables import (
    figure_tables,
    group_tables,
    notes,
    subject_facts,
)


def tokenizers_page(found: Report) -> list[Html]:
    """The parts of the page of a report."""
    return list(_parts(found))


def _parts(found: Report) -> Iterator[Html]:
    names = short_names([each.tokenizer for each in found.tokenizers])
    yield text("h1", "Tokenizers on the same text")
    yield facts(subject_facts(found, names))
    yield _figures(found, names)
    if found.by is not None:
        yield _groups(found, names)
    yield _examples(found, names)
    yield section("Notes", listed(notes(found)))


def _figures(found: Report, names: Sequence[str]) -> Html:
    ranks = [
        (name, point.rank, point.count)
        for name, each in zip(names, found.tokenizers, strict=True)
        for point in each.tokens.rank_frequency
    ]
    compression = Axes("vocabulary", "bytes per token", xlog=True)
    use = Axes("rank of the token", "occurrences", xlog=True, ylog=True)
    return section(
        "Figures",
        about(
            "More bytes per token means fewer tokens for the same text. A larger vocabulary "
            "costs parameters: prefer tokenizers at the upper left. A token that never occurs in "
            "training text stays untrained."
        ),
        pair(
            charts.points("dots", "Vocabulary against compression", found.points(), compression),
            charts.points("lines", "How often tokens occur", ranks, use),
        ),
        *(table(*each) for each in figure_tables(found, names)),
    )


def _groups(found: Report, names: Sequence[str]) -> Html:
    axis, lead = "tokens per word", "Tokens per word of each group."
    if found.base is not None:
        axis, same = "premium", "How many tokens the same texts take in each group, against"
        lead = f"{same} {found.base}: 1 is equal."
    shown = (
        charts.bars(name, _bars(each), Axes(axis))
        for name, each in zip(names, found.tokenizers, strict=True)
    )
    most = len(found.tokenizers[0].groups)
    tables = (table(*each) for each in group_tables(found, names, most))
    return section("Groups", about(lead), pair(*shown), *tables)


def _bars(each: TokenizerReport) -> list[tuple[str, Number]]:
    costs = {group: figures.premium or figures.fertility for group, figures in each.groups.items()}
    shown = [(group, number(cost.value or 0.0)) for group, cost in costs.items()]
    return sorted(shown, key=lambda bar: -bar[1].value)


def _examples(found: Report, names: Sequence[str]) -> Html:
    parts = []
    for example, content in found.examples.items():
        parts.append(text("h3", f"{example}: {content!r}"))
        for name, each in zip(names, found.tokenizers, strict=True):
            tokens = each.examples[example]
            cut = [text("i", token.replace("\n", "⏎")) for token in tokens]
            parts.append(about(f"{name}: {counted(len(tokens), 'token')}"))
            parts.append(element("div", *cut, class_="tokens"))
    return section("Examples", *parts)
