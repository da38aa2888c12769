"""Figures of one tokenizer on some documents, from a tally."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.encode.measure.tallies import Sums, Tally
from tokenmill.packing.costs import ModelShape
from tokenmill.packing.histogram import best_fit

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two sums over all documents."""

    value: float | None
    """None if the denominator is 0."""
    low: float | None = None
    """Bounds of the interval; None if there is none."""
    high: float | None = None


def ratio(numerators: Int64Array, denominators: Int64Array) -> Ratio:
    """The quotient of the first elements, and the interval between percentiles of the others.

    Shape (1 + replicates,) each: sums over all documents, then over each sample of them
    (percentile bootstrap).
    """
    if not denominators[0]:
        return Ratio(None)
    drawn = denominators > 0
    return interval((numerators[drawn] / denominators[drawn]).tolist())


def interval(values: Sequence[float]) -> Ratio:
    """The first of some values, and the interval between percentiles of the others."""
    if len(values) == 1:
        return Ratio(values[0])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[1:], [tail, 1 - tail]).tolist()
    return Ratio(values[0], low, high)


def bits_per_byte_factor(tokens: int, num_bytes: int) -> float | None:
    """Factor from a loss in nats per token to bits per byte of text."""
    return tokens / (math.log(2) * num_bytes) if num_bytes else None


RENYI_ORDER = 2.5
"""The order that correlated best with translation quality in the paper; its code defaults to 3.0,
and the figures in its README, labelled 2.5, are of 3.0."""


def probabilities(counts: Int64Array) -> npt.NDArray[np.float64]:
    """Shares of the tokens that occur, the most frequent first."""
    found = np.sort(counts[counts > 0])[::-1]
    return found / max(int(found.sum()), 1)


def renyi_entropy(counts: Int64Array, order: float = RENYI_ORDER) -> float:
    """Rényi entropy in bits, of Shannon's where `order` is 1; 0 without tokens.

    V. Zouhar et al.: "Tokenization and the Noiseless Channel" (https://arxiv.org/abs/2306.16842).
    """
    shares = probabilities(counts)
    if not len(shares):
        return 0.0
    if order == 1:
        return -float(np.sum(shares * np.log2(shares))) + 0.0
    return float(np.log2(np.sum(shares**order)) / (1 - order)) + 0.0


def efficiency(entropy: float, num_types: int) -> float:
    """Entropy as a share of the maximum for `num_types` types; 0 for fewer than two."""
    return entropy / math.log2(num_types) if num_types > 1 else 0.0


def code_bits(counts: Int64Array) -> float:
    """Size of the tokens in bits, if each takes log2 of the number of types that occur.

    The scorer of Zouhar et al. prints it as `bits`, with a negative sign.
    """
    num_types = int(np.count_nonzero(counts))
    return int(counts.sum()) * math.log2(num_types) if num_types else 0.0


def percentile_frequency(counts: Int64Array, start: float = 0.03, stop: float = 0.83) -> float:
    """Share of the types of middle rank among all tokens: without the most frequent 3 percent of
    the types and the rarest 17.

    T. Gowda and J. May (https://arxiv.org/abs/2004.02334), with the bounds and the rounding of the
    scorer of Zouhar et al.
    """
    shares = probabilities(counts)
    if not len(shares):
        return 0.0
    last = len(shares) - 1
    first, end = min(int(len(shares) * start), last), min(int(len(shares) * stop), last)
    if first == end:
        first = max(0, first - 1)
    if first == end:
        end = min(last, end + 1)
    return float(np.sum(shares[first:end]))


@dataclass(frozen=True, slots=True)
class RankPoint:
    """A point of the curve of frequency against rank."""

    rank: int
    """1 is the most frequent token."""
    count: int
    share: float
    """Of all tokens, that this one and the more frequent ones take."""


def rank_frequency(counts: Int64Array) -> list[RankPoint]:
    """The curve at ranks 1, 2, 5, 10, 20, 50 ... and at the last token that occurs."""
    found = np.sort(counts[counts > 0])[::-1]
    if not len(found):
        return []
    sums, total = np.cumsum(found), int(found.sum())
    wanted = [step * 10**power for power in range(19) for step in (1, 2, 5)]
    ranks = [rank for rank in wanted if rank < len(found)] + [len(found)]
    return [RankPoint(r, int(found[r - 1]), int(sums[r - 1]) / total) for r in ranks]


def gini(costs: Sequence[float]) -> float:
    """Gini coefficient: 0 if all groups cost the same.

    The sum of |a - b| over all ordered pairs by 2 n^2 times the mean, as TokEval has it
    (https://github.com/cimeister/tokenizer-analysis-suite); `costs` are tokens per line there.
    """
    values = np.sort(np.asarray(costs, np.float64))
    total = float(values.sum())
    if len(values) < 2 or total == 0:
        return 0.0
    # Each pair once: in rising order, value i is the greater one i times, the lesser n - 1 - i.
    greater = 2 * np.arange(len(values)) - (len(values) - 1)
    return float(np.sum(greater * values)) / (len(values) * total)


def worst(costs: Mapping[str, float]) -> str | None:
    """The group that costs most; of several, the first by name."""
    return min(costs, key=lambda name: (-costs[name], name), default=None)


@dataclass(frozen=True, slots=True)
class TextFigures:
    """Figures of one tokenizer on the documents of one group, or on all."""

    documents: int
    bytes: int
    characters: int
    words: int
    tokens: int
    types_used: int
    bytes_per_token: Ratio
    characters_per_token: Ratio
    words_per_token: Ratio
    fertility: Ratio
    """Tokens per word."""
    continued_words: Ratio
    """Share of words, each with its space, that span several tokens."""
    single_token_words: Ratio
    """Single-token retention rate: the share of all other words."""
    sequence_length_ratio: Ratio
    """Normalized sequence length: tokens by those of the first tokenizer."""
    premium: Ratio | None
    """Tokens by those of the base group, on the same texts (A. Petrov et al.,
    https://arxiv.org/abs/2305.15425); None without a base."""
    bits_per_byte_factor: float | None
    """Factor from the loss in nats per token to bits per byte of text."""
    unknown_tokens: Ratio
    """Share of all tokens."""
    part_tokens: Ratio
    """Share of tokens that are parts of characters: byte fallback, and UTF-8 fragments."""
    spelled_documents: Ratio
    """Share of documents with tokens that spell their bytes."""
    aligned_words: Ratio
    """Share of words that `continued_words` was counted on."""


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """How one tokenizer uses its vocabulary."""

    vocabulary_size: int
    types_used: int
    types_unused: int
    utilisation: float
    type_token_ratio: float | None
    shannon_entropy: float
    shannon_efficiency: float
    """Relative to the types that occur."""
    shannon_efficiency_of_vocabulary: float
    renyi_order: float
    renyi_entropy: float
    renyi_efficiency: float
    """Against the types that occur. It can be raised without any gain in training (M. Cognetta et
    al., https://arxiv.org/abs/2402.14614), so no tokenizer is ranked by it here."""
    renyi_efficiency_of_vocabulary: float
    percentile_frequency: float
    code_bits: float
    rank_frequency: list[RankPoint]


@dataclass(frozen=True, slots=True)
class Inequality:
    """Inequality between groups."""

    base: str | None
    gini: Ratio | None
    """Of tokens per document; None without a base, because it takes the same texts in each group,
    and without documents."""
    worst: str | None
    """The group with the highest premium, or without a base the highest fertility."""


def text_figures(sums: Sums, first: Sums, base: Sums | None, types_used: int) -> TextFigures:
    """Figures of some documents; `first` are those of the first tokenizer on the same ones.

    One document alone says nothing of how much others would differ: it has no intervals.
    """
    if sums.total("documents") < 2:
        sums, first = sums.without_samples(), first.without_samples()
        base = None if base is None else base.without_samples()
    tokens = sums["tokens"]
    continued, aligned = sums["continued_words"], sums["aligned_words"]
    return TextFigures(
        documents=sums.total("documents"),
        bytes=sums.total("bytes"),
        characters=sums.total("characters"),
        words=sums.total("words"),
        tokens=sums.total("tokens"),
        types_used=types_used,
        bytes_per_token=ratio(sums["bytes"], tokens),
        characters_per_token=ratio(sums["characters"], tokens),
        words_per_token=ratio(sums["words"], tokens),
        fertility=ratio(tokens, sums["words"]),
        continued_words=ratio(continued, aligned),
        single_token_words=ratio(aligned - continued, aligned),
        sequence_length_ratio=ratio(tokens, first["tokens"]),
        premium=None if base is None else ratio(tokens, base["tokens"]),
        bits_per_byte_factor=bits_per_byte_factor(sums.total("tokens"), sums.total("bytes")),
        unknown_tokens=ratio(sums["unknown_tokens"], tokens),
        part_tokens=ratio(sums["part_tokens"], tokens),
        spelled_documents=ratio(sums["spelled_documents"], sums["documents"]),
        aligned_words=ratio(aligned, sums["words"]),
    )


def token_figures(histogram: Int64Array, vocabulary_size: int) -> TokenFigures:
    """Figures of a histogram of tokens."""
    used, tokens = int(np.count_nonzero(histogram)), int(histogram.sum())
    shannon, renyi = renyi_entropy(histogram, 1), renyi_entropy(histogram)
    return TokenFigures(
        vocabulary_size=vocabulary_size,
        types_used=used,
        types_unused=vocabulary_size - used,
        utilisation=used / vocabulary_size,
        type_token_ratio=used / tokens if tokens else None,
        shannon_entropy=shannon,
        shannon_efficiency=efficiency(shannon, used),
        shannon_efficiency_of_vocabulary=efficiency(shannon, vocabulary_size),
        renyi_order=RENYI_ORDER,
        renyi_entropy=renyi,
        renyi_efficiency=efficiency(renyi, used),
        renyi_efficiency_of_vocabulary=efficiency(renyi, vocabulary_size),
        percentile_frequency=percentile_frequency(histogram),
        code_bits=code_bits(histogram),
        rank_frequency=rank_frequency(histogram),
    )


def inequality(tally: Tally, figures: Mapping[str, TextFigures], base: str | None) -> Inequality:
    """Compute the inequality between the groups of a tally."""
    costs = {
        name: (found.fertility if found.premium is None else found.premium).value or 0.0
        for name, found in figures.items()
    }
    groups = list(tally.groups.values())
    if base is None or not any(sums.total("documents") for sums in groups):
        return Inequality(base, None, worst(costs))
    tokens = np.stack([sums["tokens"] for sums in groups], axis=1)
    documents = np.stack([sums["documents"] for sums in groups], axis=1)
    drawn = (documents > 0).all(axis=1)
    values = [gini(row) for row in (tokens[drawn] / documents[drawn]).tolist()]
    return Inequality(base, interval(values), worst(costs))


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Documents, with prefix and EOS, packed into rows of one length; longer ones are cut."""

    sequence_length: int
    tokens: int
    rows: int
    """Sequences of best-fit over the whole corpus. Plans pack windows, and need a few more."""
    fill: float
    """Share of the rows' tokens that is not padding."""
    concatenated_rows: int
    """Rows if documents were concatenated and cut anywhere."""
    attention: float
    """Squared segment lengths by squared rows: of the attention over whole rows, what is left if it
    stays inside documents."""
    flops: int | None
    """Of training on the corpus once, attention inside documents included; None without a model."""


def training_rows(
    pieces: Mapping[int, Int64Array], vocabulary_size: int, model: ModelShape | None
) -> list[TrainingRows]:
    """The figures for each sequence length; `pieces` as in a Tally."""
    return [
        _of_length(length, histogram, vocabulary_size, model)
        for length, histogram in sorted(pieces.items())
    ]


def _of_length(
    length: int, histogram: Int64Array, vocabulary_size: int, model: ModelShape | None
) -> TrainingRows:
    sizes = np.arange(length + 1, dtype=np.int64)
    tokens, squares = int(histogram @ sizes), int(histogram @ sizes**2)
    rows = best_fit(histogram, length, length).num_sequences
    return TrainingRows(
        sequence_length=length,
        tokens=tokens,
        rows=rows,
        fill=tokens / (rows * length) if rows else 1.0,
        concatenated_rows=-(-tokens // length),
        attention=squares / (rows * length**2) if rows else 1.0,
        flops=model.training_flops(vocabulary_size, tokens, squares) if model else None,
    )
