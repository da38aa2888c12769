"""Figures of one tokenizer on some documents, from a tally."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.encode.measure.tallies import Sums, Tally
from tokenmill.report.tokenizers.metrics.distribution import (
    RENYI_ORDER,
    RankPoint,
    code_bits,
    efficiency,
    percentile_frequency,
    rank_frequency,
    renyi_entropy,
)
from tokenmill.report.tokenizers.metrics.fairness import gini, worst
from tokenmill.report.tokenizers.metrics.sums import Ratio, bits_per_byte_factor, interval, ratio


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


def token_figures(
    histogram: Int64Array, vocabulary_size: int, order: float = RENYI_ORDER
) -> TokenFigures:
    """Figures of a histogram of tokens."""
    used, tokens = int(np.count_nonzero(histogram)), int(histogram.sum())
    shannon, renyi = renyi_entropy(histogram, 1), renyi_entropy(histogram, order)
    return TokenFigures(
        vocabulary_size=vocabulary_size,
        types_used=used,
        types_unused=vocabulary_size - used,
        utilisation=used / vocabulary_size,
        type_token_ratio=used / tokens if tokens else None,
        shannon_entropy=shannon,
        shannon_efficiency=efficiency(shannon, used),
        shannon_efficiency_of_vocabulary=efficiency(shannon, vocabulary_size),
        renyi_order=order,
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
