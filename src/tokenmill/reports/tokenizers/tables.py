"""The facts and the tables of a report on tokenizers, for terminals and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tokenmill.core.tables import Cell, Fact, Number, Table, known, number, percent
from tokenmill.core.values import size_text
from tokenmill.reports.tokenizers.figures import Ratio, TextFigures
from tokenmill.reports.tokenizers.report import Report, TokenizerReport

Row = tuple[str, Callable[[TokenizerReport], Cell]]
"""The name of a figure, and how it is shown."""
INTERVALS = "in brackets: 95 percent intervals, from 200 Poisson samples of the documents"


def subject_facts(report: Report, names: Sequence[str]) -> list[Fact]:
    """What was measured, on which text; `names` are short ones of the tokenizers."""
    texts = report.tokenizers[0].texts
    facts = [
        (short, f"{found.tokenizer} ({found.kind})")
        for short, found in zip(names, report.tokenizers, strict=True)
    ]
    facts.append(("text", report.corpus))
    size = f"{size_text(texts.bytes)}, {texts.characters:,} characters"
    words = f"{texts.words:,} words ({report.words})"
    if texts.documents:
        facts.append(("documents", f"{texts.documents:,} with {size}, {words}"))
    else:
        facts.append(("counts", f"{words}, {size}"))
    return facts


def figure_tables(report: Report, names: Sequence[str]) -> Iterator[Table]:
    """Tables with a row for each figure, and a column for each tokenizer."""
    sections = {"length": _length_rows(), "use of the vocabulary": _use_rows()}
    for at, rows in enumerate(report.tokenizers[0].rows):
        sections[f"rows of {rows.sequence_length:,}"] = _training_rows(at, report.model)
    sections["vocabulary"] = _vocabulary_rows()
    for title, figures in sections.items():
        yield [title, *names], [[name, *map(cell, report.tokenizers)] for name, cell in figures]


def _length_rows() -> list[Row]:
    return [
        ("tokens", lambda t: number(t.texts.tokens)),
        ("bytes per token", lambda t: ratio(t.texts.bytes_per_token)),
        ("characters per token", lambda t: ratio(t.texts.characters_per_token)),
        ("words per token", lambda t: ratio(t.texts.words_per_token)),
        ("tokens per word (fertility)", lambda t: ratio(t.texts.fertility)),
        ("continued words", lambda t: _share(t.texts.continued_words)),
        ("words in one token (STRR)", lambda t: _share(t.texts.single_token_words)),
        ("tokens by the first's (NSL)", lambda t: ratio(t.texts.sequence_length_ratio)),
        ("bits per byte / loss in nats", lambda t: known(t.texts.bits_per_byte_factor, ".5g")),
        ("unknown tokens", lambda t: _share(t.texts.unknown_tokens)),
        ("parts of characters", lambda t: _share(t.texts.part_tokens)),
        ("documents spelled exactly", lambda t: _share(t.texts.spelled_documents)),
    ]


def _use_rows() -> list[Row]:
    return [
        ("vocabulary", lambda t: number(t.tokens.vocabulary_size)),
        ("used", _used),
        ("never used", lambda t: number(t.tokens.types_unused)),
        ("types by tokens (TTR)", lambda t: known(t.tokens.type_token_ratio, ".5g")),
        ("Shannon entropy, bits", lambda t: number(t.tokens.shannon_entropy, ".4f")),
        ("  efficiency, of used", lambda t: number(t.tokens.shannon_efficiency, ".4f")),
        (
            "  efficiency, of all",
            lambda t: number(t.tokens.shannon_efficiency_of_vocabulary, ".4f"),
        ),
        ("Renyi entropy, bits", lambda t: number(t.tokens.renyi_entropy, ".4f")),
        ("  efficiency, of used", lambda t: number(t.tokens.renyi_efficiency, ".4f")),
        ("  efficiency, of all", lambda t: number(t.tokens.renyi_efficiency_of_vocabulary, ".4f")),
        ("percentile frequency", lambda t: number(t.tokens.percentile_frequency, ".4f")),
        ("share of 10 most frequent", lambda t: _share_at(t, 10)),
        ("share of 1,000", lambda t: _share_at(t, 1_000)),
    ]


def _training_rows(at: int, model: str | None) -> list[Row]:
    rows: list[Row] = [
        ("tokens with prefix and EOS", lambda t: number(t.rows[at].tokens)),
        ("rows, best-fit", lambda t: number(t.rows[at].rows)),
        ("fill", lambda t: number(t.rows[at].fill, ".2%")),
        ("rows, joined and cut", lambda t: number(t.rows[at].concatenated_rows)),
        ("attention inside documents", lambda t: number(t.rows[at].attention, ".1%")),
    ]
    if model is not None:
        rows.append((f"FLOPs, {model}, once", lambda t: number(t.rows[at].flops or 0, ".3e")))
    return rows


def _vocabulary_rows() -> list[Row]:
    def fact(name: str) -> Callable[[TokenizerReport], Cell]:
        return lambda t: "-" if t.vocabulary is None else number(getattr(t.vocabulary, name))

    names = ("special", "added", "single_bytes", "fragments", "unreachable", "long")
    rows = [(name.replace("_", " "), fact(name)) for name in names]
    rows.append(
        ("in common with the first", lambda t: number(t.overlap.common) if t.overlap else "-")
    )
    return rows


def group_tables(report: Report, names: Sequence[str], most: int) -> Iterator[Table]:
    """The size of each group, and for each metric a table of groups and tokenizers.

    Tables show up to `most` groups.
    """
    groups = dict(list(report.tokenizers[0].groups.items())[:most])
    sizes = [
        [group, number(found.documents), number(found.bytes), number(found.words)]
        for group, found in groups.items()
    ]
    yield [report.by or "", "documents", "bytes", "words"], sizes
    metrics: dict[str, Callable[[TextFigures], Cell]] = {
        "tokens": lambda figures: number(figures.tokens),
        "tokens per word": lambda figures: ratio(figures.fertility),
        "bytes per token": lambda figures: ratio(figures.bytes_per_token),
    }
    if report.base is not None:
        metrics[f"premium over {report.base}"] = lambda figures: ratio(figures.premium)
    for metric, shown in metrics.items():
        rows = [
            [group, *(shown(found.groups[group]) for found in report.tokenizers)]
            for group in groups
        ]
        yield [metric, *names], rows
    unequal = [found.inequality for found in report.tokenizers if found.inequality is not None]
    if unequal:
        worst: list[list[Cell]] = [["worst", *(str(each.worst) for each in unequal)]]
        if any(each.gini for each in unequal):
            worst.insert(0, ["Gini", *(ratio(each.gini) for each in unequal)])
        yield ["inequality", *names], worst


def notes(report: Report) -> list[str]:
    """What to know of the figures."""
    shown = [
        *report.notes,
        *([INTERVALS] if report.tokenizers[0].texts.documents else []),
        "continued words: taken with their space, as the tokenizer meets them",
        "figures: docs/reference/tokenizer-training.md defines each, with its name in --csv",
        "Renyi: of order 2.5; it can rise without any gain in training, so use other figures, too",
    ]
    if report.num_rejected:
        shown.append(f"{report.num_rejected:,} records could not be read and were left out")
    for found in report.tokenizers:
        aligned = found.texts.aligned_words.value
        if aligned is not None and aligned < 1:
            shown.append(
                f"{found.tokenizer}: continued words were counted in {aligned:.1%} of all words"
            )
    return shown


def ratio(found: Ratio | None, fine: str = ".4f", coarse: str = ".3f") -> Cell:
    """A ratio with its interval."""
    if found is None or found.value is None:
        return "-"
    if found.low is None or found.high is None or found.low == found.high:
        return number(found.value, fine)
    between = f"[{found.low:{coarse}}, {found.high:{coarse}}]"
    return Number(found.value, f"{found.value:{fine}} {between}")


def _used(found: TokenizerReport) -> Cell:
    tokens = found.tokens
    return Number(tokens.types_used, f"{tokens.types_used:,} ({tokens.utilisation:.1%})")


def _share(found: Ratio) -> Cell:
    return ratio(found, ".2%", ".1%")


def _share_at(found: TokenizerReport, rank: int) -> Cell:
    return next((percent(p.share, 1) for p in found.tokens.rank_frequency if p.rank == rank), "-")
