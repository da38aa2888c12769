"""Compare several tokenizers on the same text, measured one after another."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenmill.core import pictures
from tokenmill.core.charts import Library, scatter
from tokenmill.core.errors import UserError
from tokenmill.core.html import card
from tokenmill.core.records import Advance
from tokenmill.core.suggestions import nearest
from tokenmill.core.values import counted, safe_text
from tokenmill.encode.engine import Reference
from tokenmill.encode.measure.tallies import Sums, Tally
from tokenmill.encode.token_bytes import Token
from tokenmill.packing.costs import ModelShape
from tokenmill.reports.tokenizers.corpus import (
    WORDS_OF_COUNTS,
    Corpus,
    counted_corpus,
    is_counts,
    measure_counts,
    open_corpus,
)
from tokenmill.reports.tokenizers.figures import (
    Inequality,
    Ratio,
    TextFigures,
    TokenFigures,
    TrainingRows,
    inequality,
    text_figures,
    token_figures,
    training_rows,
)
from tokenmill.reports.tokenizers.subject import Subject
from tokenmill.reports.tokenizers.vocabulary_facts import (
    Overlap,
    VocabularyFacts,
    overlap,
    vocabulary_facts,
)
from tokenmill.run.pipeline import measure
from tokenmill.run.recipe.options import MeasureRecipe, ReadOptions, ResourceOptions
from tokenmill.store.counts.folder import open_counts

MAX_LENGTH = 1 << 24
EXAMPLES = {
    "digits": "1234567 + 3.14159",
    "date": "2026-11-22T09:30",
    "code": "for i in range(10):\n        total += x[i]",
    "white space": "a  b    c\t\td\n\n\ne",
    "accents": "na\u00efve co\u00f6rdination",
    "emoji": "\U0001f469\u200d\U0001f4bb \u2764\ufe0f",
}


def cut_examples(reference: Reference, tokens: Mapping[int, Token] | None) -> dict[str, list[str]]:
    """Return the tokens of each example as texts; bytes that are no whole character in hex.

    Without a list of tokens, each is as the library decodes it.
    """
    found = {}
    for name, text in EXAMPLES.items():
        ids = reference.encode([text]).ids.tolist()
        if tokens is None:
            found[name] = [reference.decode([i]) for i in ids]
        else:
            found[name] = [tokens[i].data.decode(errors="backslashreplace") for i in ids]
    return found


@dataclass(frozen=True, slots=True)
class TokenizerReport:
    """One tokenizer of a report."""

    tokenizer: str
    kind: str
    texts: TextFigures
    """On all documents."""
    groups: dict[str, TextFigures]
    """Figures by group, in order of names; empty if documents are not grouped."""
    inequality: Inequality | None
    tokens: TokenFigures
    rows: list[TrainingRows]
    vocabulary: VocabularyFacts | None
    """None for a Python object without a list of tokens."""
    overlap: Overlap | None
    """Overlap with the vocabulary of the first tokenizer; None for the first one."""
    examples: dict[str, list[str]]
    """The tokens of each of `Report.examples`, as texts."""


@dataclass(frozen=True, slots=True, repr=False)
class Report:
    """Tokenizers on the same text."""

    corpus: str
    words: str
    """The rule that split words."""
    by: str | None
    base: str | None
    model: str | None
    num_rejected: int
    """Records that could not be read."""
    notes: list[str]
    examples: dict[str, str]
    tokenizers: list[TokenizerReport]

    def __repr__(self) -> str:
        return f"<Report on {self.corpus!r}: {counted(len(self.tokenizers), 'tokenizer')}>"

    @property
    def plot(self) -> ReportCharts:
        """Charts of the report, drawn by Altair or Matplotlib: `report.plot.pareto()`."""
        return ReportCharts(self)

    def _repr_html_(self) -> str:
        """Return a table and bars of bytes per token, for notebooks."""
        facts = [("text", self.corpus)]
        for name, size, value in self.points():
            facts.append((name, f"{size:,} ids, {value:.2f} bytes per token"))
        values = [value for *_, value in self.points()]
        title = "bytes per token, in the order of the table; more is better"
        bars = pictures.rows([[value] for value in values], max(values) or 1, title)
        return card("Tokenizers", facts, bars)

    def points(self) -> list[tuple[str, int, float]]:
        """The name, the size of the vocabulary and the bytes per token of each tokenizer."""
        names = short_names([each.tokenizer for each in self.tokenizers])
        return [
            (safe_text(name), each.tokens.vocabulary_size, each.texts.bytes_per_token.value or 0.0)
            for name, each in zip(names, self.tokenizers, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class ReportCharts:
    """Charts of a report, drawn by Altair or Matplotlib."""

    report: Report

    def pareto(self, library: Library | None = None) -> Any:
        """Draw the bytes per token of each tokenizer against the size of its vocabulary.

        A line goes through the efficient ones: no other has more bytes per token with as small a
        vocabulary. `library` is "altair" or "matplotlib"; without it, Altair draws if it is
        installed.
        """
        axes = ("size of the vocabulary", "bytes per token")
        return scatter("Vocabulary and bytes per token", axes, self.report.points(), library)


def short_names(names: Sequence[str]) -> list[str]:
    """Short names for the header: the stem of a file, or the folder of a tokenizer.json."""
    short = []
    for name in names:
        path = Path(name)
        short.append(path.parent.name if path.stem == "tokenizer" else path.stem or name)
    repeated = Counter(short)
    pairs = zip(short, names, strict=True)
    return [name if repeated[name] > 1 or not part else part for part, name in pairs]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The options of a report, without the texts."""

    words: str = "uax29"
    """The rule that splits texts into words."""
    sequence_lengths: tuple[int, ...] = (2048, 8192)
    base: str | None = None
    """The base group of premiums. Its documents are the same texts as those of other groups."""
    model: ModelShape | None = None
    resources: ResourceOptions | None = None

    def __post_init__(self) -> None:
        for length in self.sequence_lengths:
            if not 1 <= length <= MAX_LENGTH:
                why = f"got {length:,}; it may be from 1 to {MAX_LENGTH:,} tokens"
                raise UserError("a sequence length is out of bounds", why=why)


def report_on_inputs(
    subjects: Sequence[Subject],
    inputs: Sequence[str],
    read: ReadOptions,
    by: str | None,
    asked: Comparison,
    advance: Advance,
) -> Report:
    """Measure tokenizers on files, on the sources of a dataset, or on a folder of word counts.

    Raises:
        UserError: an input, a column or the base group does not exist, or counted words were split
            in another way.
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or no engine is exact.
    """
    counts = open_counts(inputs[0]) if is_counts(inputs) else None
    if counts is None:
        corpus, words = open_corpus(inputs, read, by, advance), asked.words
    else:
        corpus, words = counted_corpus(counts, str(counts.folder), by), WORDS_OF_COUNTS
    recipe = MeasureRecipe(
        sources=corpus.sources,
        fields=corpus.fields,
        words=words,
        sequence_lengths=asked.sequence_lengths,
        groups=corpus.groups,
        column=corpus.column,
        resources=asked.resources or ResourceOptions(),
    )
    tallies: list[Tally] = []

    def tell(stage: str, done: int, total: int) -> None:
        """Report one progress for all tokenizers."""
        advance(stage, len(tallies) * total + done, len(subjects) * total)

    for subject in subjects:
        if counts is None:
            found = measure(subject.measured, recipe, tell)
        else:
            found = measure_counts(subject, counts, tell)
        _require_base(asked.base, found.groups)
        tallies.append(found)
    return Report(
        corpus=corpus.origin,
        words=words,
        by=corpus.by,
        base=asked.base,
        model=asked.model.name if asked.model else None,
        num_rejected=tallies[0].num_rejected,
        notes=[*corpus.notes, *_parallel_notes(corpus, asked.base, tallies[0])],
        examples=EXAMPLES,
        tokenizers=[
            _one(subject, tally, subjects[0], tallies[0], asked)
            for subject, tally in zip(subjects, tallies, strict=True)
        ],
    )


def _one(
    subject: Subject, tally: Tally, first: Subject, first_tally: Tally, asked: Comparison
) -> TokenizerReport:
    groups = {
        name: text_figures(
            tally.groups[name],
            first_tally.groups[name],
            tally.groups[asked.base] if asked.base is not None else None,
            int(tally.used[name].sum()),
        )
        for name in sorted(tally.groups)
    }
    is_grouped = list(groups) not in ([], [""])
    tokens = token_figures(tally.histogram, subject.vocabulary_size)
    shared = None
    if subject is not first and subject.tokens is not None and first.tokens is not None:
        shared = overlap(subject.tokens, first.tokens)
    total, of_first = (Sums.of(each.groups.values()) for each in (tally, first_tally))
    return TokenizerReport(
        tokenizer=subject.name,
        kind=subject.file.kind,
        texts=text_figures(total, of_first, None, tokens.types_used),
        groups=groups if is_grouped else {},
        inequality=inequality(tally, groups, asked.base) if is_grouped else None,
        tokens=tokens,
        rows=training_rows(tally.pieces, subject.vocabulary_size, asked.model),
        vocabulary=vocabulary_facts(subject.file, subject.reference),
        overlap=shared,
        examples=cut_examples(subject.reference, subject.tokens),
    )


def _parallel_notes(corpus: Corpus, base: str | None, tally: Tally) -> Iterator[str]:
    """Notes on what the comparison with a base group lacks; counts hold no documents."""
    if base is None or not corpus.sources:
        return
    sizes = [sums.total("documents") for sums in tally.groups.values()]
    if len(set(sizes)) > 1:
        yield (
            f"the groups have {min(sizes):,} to {max(sizes):,} documents: premiums and Gini are "
            "for parallel texts, the same documents in each group"
        )
    if corpus.fields.id is None:
        yield (
            "no --id-field tells which documents are translations of each other: the intervals of "
            "premiums and Gini are too wide, because each document is drawn alone"
        )


def _require_base(base: str | None, groups: Mapping[str, Sums]) -> None:
    if base is None or base in groups:
        return
    close = nearest(base, groups)
    raise UserError(
        f"no group {base!r}",
        why=f"the groups are {', '.join(sorted(groups)[:20]) or 'none'}",
        hint=f"did you mean {close!r}?" if close else "name one of them, with --by COLUMN",
    )


HEADER = ("tokenizer", "group", "figure", "value", "low", "high")
Line = tuple[str, str, str, object, object, object]


def csv_lines(report: Report) -> str:
    """All figures of a report. Examples and lists of tokens are only in JSON."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for found in report.tokenizers:
        writer.writerows(_lines(found))
    return text.getvalue()


def _lines(found: TokenizerReport) -> Iterator[Line]:
    name = found.tokenizer
    yield from _figures(name, "", found.texts)
    for group, figures in found.groups.items():
        yield from _figures(name, group, figures)
    if found.inequality is not None:
        yield from _figures(name, "", found.inequality)
    yield from _figures(name, "", found.tokens, "use.")
    for point in found.tokens.rank_frequency:
        yield name, "", f"use.count_at_rank_{point.rank}", point.count, None, None
    for rows in found.rows:
        prefix = f"rows_{rows.sequence_length}."
        yield from _figures(name, "", rows, prefix)
    if found.vocabulary is not None:
        yield from _figures(name, "", found.vocabulary, "vocabulary.")
    if found.overlap is not None:
        yield from _figures(name, "", found.overlap, "overlap.")


def _figures(name: str, group: str, figures: object, prefix: str = "") -> Iterator[Line]:
    for field in dataclasses.fields(figures):  # type: ignore[arg-type]
        value = getattr(figures, field.name)
        if isinstance(value, Ratio):
            yield name, group, prefix + field.name, value.value, value.low, value.high
        elif isinstance(value, (int, float, str)):
            yield name, group, prefix + field.name, value, None, None
