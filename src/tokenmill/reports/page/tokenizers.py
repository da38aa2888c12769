"""The page of a report on tokenizers: what each makes of the same text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.core.html import Html, element, escaped, section, table
from tokenmill.core.tables import Cell, Number, number, percent
from tokenmill.core.values import counted, size_text
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes, Bar, Point
from tokenmill.reports.tokenizers.figures import Ratio, TextFigures
from tokenmill.reports.tokenizers.report import Report, TokenizerReport, short_names

DEFINITIONS = "Each figure is defined in docs/reference/tokenizer-training.md."


def tokenizers_page(found: Report) -> list[Html]:
    """The parts of the page of a report."""
    return list(_parts(found))


def _parts(found: Report) -> Iterator[Html]:
    names = short_names([each.tokenizer for each in found.tokenizers])
    texts = found.tokenizers[0].texts
    what = counted(texts.documents, "document") if texts.documents else "counted words"
    yield element("h1", escaped("Tokenizers on the same text"))
    yield element(
        "p",
        escaped(f"{found.corpus}: {what}, {size_text(texts.bytes)}, {texts.words:,} words."),
        class_="about",
    )
    yield _length(found, names)
    yield _vocabulary(found, names)
    if found.by is not None:
        yield _groups(found, names)
    yield _examples(found, names)
    if found.notes:
        items = [element("li", escaped(note)) for note in found.notes]
        yield section("Notes", element("ul", *items))


def _length(found: Report, names: Sequence[str]) -> Html:
    pairs = list(zip(names, found.tokenizers, strict=True))
    points = [
        Point(each.tokens.vocabulary_size, each.texts.bytes_per_token.value or 0, name=name)
        for name, each in pairs
    ]
    axes = Axes("vocabulary", "bytes per token", xlog=True)
    header = (
        "tokenizer",
        "vocabulary",
        "tokens",
        "bytes per token",
        "characters per token",
        "tokens per word",
        "continued words",
        "words in one token",
        "unknown tokens",
    )
    return section(
        "Length",
        charts.dots("Vocabulary against compression", points, axes),
        table(header, [_length_row(name, each) for name, each in pairs]),
        about="More bytes per token means fewer tokens for the same text. A larger vocabulary "
        "costs parameters: prefer tokenizers at the upper left. In brackets: intervals of 95 %. "
        + DEFINITIONS,
    )


def _length_row(name: str, each: TokenizerReport) -> list[Cell]:
    texts = each.texts
    return [
        name,
        number(each.tokens.vocabulary_size),
        number(texts.tokens),
        _ratio(texts.bytes_per_token),
        _ratio(texts.characters_per_token),
        _ratio(texts.fertility),
        _share(texts.continued_words),
        _share(texts.single_token_words),
        _share(texts.unknown_tokens),
    ]


def _vocabulary(found: Report, names: Sequence[str]) -> Html:
    points = [
        Point(point.rank, point.count, name)
        for name, each in zip(names, found.tokenizers, strict=True)
        for point in each.tokens.rank_frequency
    ]
    axes = Axes("rank of the token", "occurrences", xlog=True, ylog=True)
    rows = [
        (
            name,
            number(each.tokens.types_used),
            percent(each.tokens.utilisation),
            number(each.tokens.shannon_entropy),
            percent(each.tokens.shannon_efficiency),
            *(
                [number(each.vocabulary.unreachable), number(each.vocabulary.fragments)]
                if each.vocabulary
                else ["-", "-"]
            ),
        )
        for name, each in zip(names, found.tokenizers, strict=True)
    ]
    header = (
        "tokenizer",
        "ids used",
        "of all",
        "entropy, bits",
        "efficiency",
        "unreachable",
        "parts of characters",
    )
    return section(
        "Use of the vocabulary",
        charts.lines("How often tokens occur", points, axes),
        table(header, rows),
        about="A token that never occurs in training text stays untrained.",
    )


def _groups(found: Report, names: Sequence[str]) -> Html:
    first = found.tokenizers[0]
    shown = [
        charts.bars(name, _bars(each), Axes("tokens per word" if found.base is None else "premium"))
        for name, each in zip(names, found.tokenizers, strict=True)
    ]
    header = (str(found.by), "documents", "text", *names)
    rows = [
        (
            group,
            number(texts.documents),
            Number(texts.bytes, size_text(texts.bytes)),
            *(_ratio(each.groups[group].bytes_per_token) for each in found.tokenizers),
        )
        for group, texts in first.groups.items()
    ]
    about = (
        "Tokens per word of each group."
        if found.base is None
        else (
            f"How many tokens the same texts take in each group, against {found.base}: 1 is equal."
        )
    )
    return section(
        "Groups",
        element("div", *shown, class_="pair"),
        table(header, rows, "Bytes per token."),
        about=about,
    )


def _bars(each: TokenizerReport) -> list[Bar]:
    bars = []
    for group, texts in each.groups.items():
        value = _cost(texts)
        bars.append(Bar(group, value, f"{value:.2f}"))
    return sorted(bars, key=lambda bar: -bar.value)


def _cost(texts: TextFigures) -> float:
    found = texts.premium or texts.fertility
    return found.value or 0.0


def _examples(found: Report, names: Sequence[str]) -> Html:
    parts = []
    for example, text in found.examples.items():
        parts.append(element("h3", escaped(f"{example}: {text!r}")))
        for name, each in zip(names, found.tokenizers, strict=True):
            tokens = each.examples[example]
            cut = [element("i", escaped(token.replace("\n", "⏎"))) for token in tokens]
            parts.append(
                element("p", escaped(f"{name}: {counted(len(tokens), 'token')}"), class_="about")
            )
            parts.append(element("div", *cut, class_="tokens"))
    return section("Examples", *parts)


def _ratio(found: Ratio) -> Cell:
    if found.value is None:
        return "-"
    between = (
        "" if found.low is None or found.high is None else f" [{found.low:.3f}, {found.high:.3f}]"
    )
    return Number(found.value, f"{found.value:.3f}{between}")


def _share(found: Ratio) -> Cell:
    return "-" if found.value is None else percent(found.value)
