"""Compare several tokenizers on the same text, measured one after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.core.suggestions import nearest
from tokenmill.encode.measure.tallies import Sums, Tally
from tokenmill.pack.costs import ModelShape
from tokenmill.report.tokenizers.corpus import Corpus, is_counts, open_corpus
from tokenmill.report.tokenizers.counted import WORDS_OF_COUNTS, counted_corpus, measure_counts
from tokenmill.report.tokenizers.examples import EXAMPLES, cut_examples
from tokenmill.report.tokenizers.figures import (
    Inequality,
    TextFigures,
    TokenFigures,
    inequality,
    text_figures,
    token_figures,
)
from tokenmill.report.tokenizers.metrics.distribution import RENYI_ORDER
from tokenmill.report.tokenizers.subject import Subject
from tokenmill.report.tokenizers.training_rows import TrainingRows, training_rows
from tokenmill.report.tokenizers.vocabulary_facts import (
    Overlap,
    VocabularyFacts,
    overlap,
    vocabulary_facts,
)
from tokenmill.run.measure import Measuring, measure
from tokenmill.run.recipe.options import ReadOptions, ResourceOptions
from tokenmill.store.counts.folder import CountsFolder, open_counts

MAX_LENGTH = 1 << 24


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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Comparison:
    """The options of a report, without the texts."""

    words: str = "uax29"
    """The rule that splits texts into words."""
    sequence_lengths: tuple[int, ...] = (2048, 8192)
    base: str | None = None
    """The base group of premiums. Its documents are the same texts as those of other groups."""
    model: ModelShape | None = None
    renyi_order: float = RENYI_ORDER
    resources: ResourceOptions | None = None

    def __post_init__(self) -> None:
        for length in self.sequence_lengths:
            if not 1 <= length <= MAX_LENGTH:
                why = f"got {length:,}; it may be from 1 to {MAX_LENGTH:,} tokens"
                raise UserError("a sequence length is out of bounds", why=why)


@dataclass(slots=True)
class _Progress:
    """One figure for all tokenizers."""

    advance: Advance
    count: int
    number: int = field(default=0)

    def tell(self, stage: str, done: int, total: int) -> None:
        """Report the progress of one tokenizer."""
        self.advance(stage, self.number * total + done, self.count * total)


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
        UserError: an input, a column or the base group does not exist.
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or no engine is exact.
    """
    if is_counts(inputs):
        return report_on_counts(subjects, open_counts(inputs[0]), by, asked, advance)
    return report_on(subjects, open_corpus(inputs, read, by, advance), asked, advance)


def report_on(
    subjects: Sequence[Subject], corpus: Corpus, asked: Comparison, advance: Advance
) -> Report:
    """Measure tokenizers on the documents of a corpus.

    Raises:
        UserError: the base group does not exist.
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or no engine is exact.
    """
    how = Measuring(
        words=asked.words,
        sequence_lengths=asked.sequence_lengths,
        groups=corpus.groups,
        column=corpus.column,
    )

    def measured(subject: Subject, tell: Advance) -> Tally:
        tokenizer, resources = subject.measured, asked.resources
        return measure(tokenizer, corpus.sources, corpus.fields, how, resources, tell)

    return _report(subjects, corpus, asked, advance, measured)


def report_on_counts(
    subjects: Sequence[Subject],
    counts: CountsFolder,
    by: str | None,
    asked: Comparison,
    advance: Advance,
) -> Report:
    """Measure tokenizers on counted words, each encoded as the tokenizer does.

    Raises:
        UserError: the base or grouping does not exist, or words were split in another way.
    """
    corpus = counted_corpus(counts, str(counts.folder), by)
    asked = replace(asked, words=WORDS_OF_COUNTS)

    def measured(subject: Subject, tell: Advance) -> Tally:
        return measure_counts(subject, counts, tell)

    return _report(subjects, corpus, asked, advance, measured)


def _report(
    subjects: Sequence[Subject],
    corpus: Corpus,
    asked: Comparison,
    advance: Advance,
    measured: Callable[[Subject, Advance], Tally],
) -> Report:
    progress = _Progress(advance, len(subjects))
    tallies = []
    for progress.number, subject in enumerate(subjects):
        tallies.append(measured(subject, progress.tell))
        _require_base(asked.base, tallies[-1].groups)
    return Report(
        corpus=corpus.origin,
        words=asked.words,
        by=corpus.by,
        base=asked.base,
        model=asked.model.name if asked.model else None,
        num_rejected=tallies[0].num_rejected,
        notes=list(corpus.notes),
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
    tokens = token_figures(tally.histogram, subject.vocabulary_size, asked.renyi_order)
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


def _require_base(base: str | None, groups: Mapping[str, Sums]) -> None:
    if base is None or base in groups:
        return
    close = nearest(base, groups)
    raise UserError(
        f"no group {base!r}",
        why=f"the groups are {', '.join(sorted(groups)[:20]) or 'none'}",
        hint=f"did you mean {close!r}?" if close else "name one of them, with --by COLUMN",
    )
