"""Analyse document lengths: figures of each sequence length, and a recommendation."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.html import card
from tokenmill.core.records import Advance, FloatArray
from tokenmill.core.tables import Fact
from tokenmill.core.values import counted, size_text
from tokenmill.packing.costs import ModelShape
from tokenmill.packing.options import MAX_SEQUENCE_LENGTH, MIN_SEQUENCE_LENGTH, TOO_SHORT
from tokenmill.reports.lengths.advice import Recommendation, recommend
from tokenmill.reports.lengths.counts import (
    PERCENTILES,
    Bin,
    LengthCounts,
    length_picture,
    lengths_of_dataset,
)
from tokenmill.reports.lengths.figures import (
    Budget,
    CostFigures,
    RowFigures,
    cost_figures,
    row_figures,
)
from tokenmill.reports.lengths.sample import LengthSample, Sampled, sample_lengths
from tokenmill.run.recipe.options import Recipe
from tokenmill.store.dataset import Dataset

CONFIDENCE = "(95 % confidence)"
SEQUENCE_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
TOKENS_PER_BATCH = 1 << 19
"""The batch of the smaller GPT-3 models (arXiv 2005.14165, table 2.1)."""


@dataclass(frozen=True, slots=True)
class Margins:
    """95 % margins of error for the figures of a sample."""

    documents: float
    tokens: float
    percentiles: dict[int, float]
    cut_shares: dict[int, float]
    """By sequence length, like `sequences`."""
    sequences: dict[int, float]


@dataclass(frozen=True, slots=True, repr=False)
class Analysis:
    """Document lengths of a corpus, the effects of several sequence lengths, and their costs."""

    corpus: str
    documents: int
    tokens: int
    """Number of tokens, including the prefix and EOS of each document."""
    shortest: int
    mean: float
    longest: int
    """Tokens of the longest document that was read."""
    percentiles: dict[int, int]
    """Percentiles of document length: key 50 is the median."""
    token_percentiles: dict[int, int]
    """Percentiles weighted by tokens: documents up to the length of key 50 hold half the tokens."""
    histogram: list[Bin]
    model: ModelShape
    budget: Budget
    rows: list[RowFigures]
    costs: list[CostFigures]
    """FLOPs and memory, one entry for each of `rows`."""
    recommendation: Recommendation
    sampled: Sampled | None
    """The sample that was read. None for a dataset, where all lengths are known."""
    margins: Margins | None
    """Margins of error. None if nothing is estimated, or if the sample is too small."""

    def __repr__(self) -> str:
        lengths = ", ".join(f"{row.sequence_length:,}" for row in self.rows)
        corpus = f"{self.documents:,} documents, {self.tokens:,} tokens"
        return f"<Analysis of {self.corpus!r}: {corpus}; sequence lengths {lengths}>"

    def facts(self) -> Iterator[Fact]:
        """What was read, and how long documents are."""
        yield "corpus", self.corpus
        sampled, margins = self.sampled, self.margins
        documents, tokens = counted(self.documents, "document"), counted(self.tokens, "token")
        if sampled is None or sampled.is_whole:
            yield "documents", f"{documents} with {tokens}"
        else:
            yield "documents", f"about {documents} with {tokens}"
            if margins is not None:
                off = f"{margins.documents:,.0f} documents and {margins.tokens:,.0f} tokens"
                yield "error", f"at most {off} {CONFIDENCE}"
            else:
                yield "error", "unknown: the sample is too small"
        seen = "" if sampled is None or sampled.is_whole else " in the sample"
        longest = counted(self.longest, "token")
        yield "lengths", f"{self.shortest:,} to {longest}{seen}, {self.mean:,.1f} on average"
        if sampled is not None:
            whole = "all" if sampled.is_whole else f"of {size_text(sampled.input_bytes)}"
            read = (
                f"{counted(sampled.documents, 'document')}, {size_text(sampled.num_bytes)}, {whole}"
            )
            yield "read", f"{read}, {sampled.rejected} rejected, {sampled.damaged} damaged files"
            yield "engine", sampled.engine

    def _repr_html_(self) -> str:
        """Return a table and a histogram of lengths, for notebooks."""
        facts = [*self.facts(), ("recommended", self.recommendation.headline)]
        return card("Analysis of lengths", facts, length_picture(self.histogram))


@dataclass(frozen=True, slots=True)
class Question:
    """The options of an analysis."""

    sequence_lengths: Sequence[int]
    model: ModelShape
    budget: Budget

    def __post_init__(self) -> None:
        if not self.sequence_lengths:
            raise UserError("give at least one sequence length")
        for length in self.sequence_lengths:
            if not MIN_SEQUENCE_LENGTH <= length <= MAX_SEQUENCE_LENGTH:
                largest = f"must be at most {MAX_SEQUENCE_LENGTH:,}"
                why = f"got {length:,}; {TOO_SHORT if length < MIN_SEQUENCE_LENGTH else largest}"
                raise UserError("a sequence length is out of bounds", why=why)


def analyze_dataset(dataset: Dataset, question: Question, advance: Advance) -> Analysis:
    """Analyse all documents of a dataset, by its index.

    Raises:
        UserError: it has no documents.
        VerificationError: an index is damaged.
    """
    counts = lengths_of_dataset(dataset, advance)
    if not counts.num_documents:
        raise UserError("no documents to analyse", where=dataset.location)
    return analysis_of(dataset.location, counts, question)


def analyze_files(
    recipe: Recipe, tokenizer: object, question: Question, seed: int, advance: Advance
) -> Analysis:
    """Analyse the documents of files: all, or a sample that is a function of files and seed.

    Raises:
        UserError: the inputs or the tokenizer cannot be used, as a build would say.
        DataError: no document was found, and a file is damaged.
    """
    rng = np.random.default_rng(seed)
    sample = sample_lengths(recipe, tokenizer, rng, advance)
    margins = None if sample.sampled.is_whole else _margins(sample, question, rng)
    origin = ", ".join(recipe.inputs)
    return analysis_of(origin, sample.counts, question, sample.sampled, margins)


def analysis_of(
    corpus: str,
    counts: LengthCounts,
    question: Question,
    sampled: Sampled | None = None,
    margins: Margins | None = None,
) -> Analysis:
    """The figures of some document lengths; `corpus` says where they come from."""
    lengths = sorted(set(question.sequence_lengths))
    rows = [row_figures(counts, length) for length in lengths]
    costs = [cost_figures(counts, each, question.model, question.budget) for each in rows]
    return Analysis(
        corpus=corpus,
        documents=counts.num_documents,
        tokens=counts.num_tokens,
        shortest=int(counts.lengths[0]),
        mean=counts.num_tokens / counts.num_documents,
        longest=int(counts.lengths[-1]),
        percentiles={share: counts.percentile(share) for share in PERCENTILES},
        token_percentiles={share: counts.token_percentile(share) for share in PERCENTILES},
        histogram=counts.bins(),
        model=question.model,
        budget=question.budget,
        rows=rows,
        costs=costs,
        recommendation=recommend(rows, costs, question.model),
        sampled=sampled,
        margins=margins,
    )


def _margins(sample: LengthSample, question: Question, rng: np.random.Generator) -> Margins | None:
    lengths = sorted(set(question.sequence_lengths))

    def statistics(counts: LengthCounts) -> FloatArray:
        rows = [row_figures(counts, length) for length in lengths]
        return np.array(
            [
                counts.num_documents,
                counts.num_tokens,
                *(counts.percentile(share) for share in PERCENTILES),
                *(each.cut_share for each in rows),
                *(each.sequences for each in rows),
            ]
        )

    found = sample.margins(statistics, rng)
    if found is None:
        return None
    first, second = 2 + len(PERCENTILES), 2 + len(PERCENTILES) + len(lengths)
    return Margins(
        documents=float(found[0]),
        tokens=float(found[1]),
        percentiles=dict(zip(PERCENTILES, found[2:first].tolist(), strict=True)),
        cut_shares=dict(zip(lengths, found[first:second].tolist(), strict=True)),
        sequences=dict(zip(lengths, found[second:].tolist(), strict=True)),
    )


def csv_lines(found: Analysis) -> str:
    """Rows and costs of each length, with margins of error; the rest is only in JSON."""
    text = io.StringIO()
    lines = []
    for rows, costs in zip(found.rows, found.costs, strict=True):
        line = dataclasses.asdict(rows) | dataclasses.asdict(costs)
        if found.margins is not None:
            line["cut_share_margin"] = found.margins.cut_shares[rows.sequence_length]
            line["sequences_margin"] = found.margins.sequences[rows.sequence_length]
        chosen = found.recommendation.is_for(rows.sequence_length)
        lines.append(line | {"recommended": int(chosen)})
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
