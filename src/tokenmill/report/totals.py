"""Estimate totals of all inputs from sampled blocks, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.report.sampling import Drawn, SourceSample

STANDARD_ERRORS = 2.2
"""Width of an interval on each side. For large, even samples, 1.96 would give 95 %."""
UNREAD_ERROR = 0.1
"""Assumed difference between the read and the unread part of a stream (one standard error)."""
MAX_GROUPS = 16
MIN_SLICES = 16
"""Sources with fewer slices share a rate."""

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Total:
    """An estimated number and the square of its standard error."""

    value: float
    variance: float = 0.0

    @property
    def interval(self) -> tuple[int, int]:
        """The 95 % confidence interval."""
        margin = STANDARD_ERRORS * math.sqrt(self.variance)
        return round(max(self.value - margin, 0)), round(self.value + margin)

    def scaled(self, share: float) -> Total:
        """Multiply the total by a share."""
        return Total(self.value * share, self.variance * share**2)


def estimate_totals(
    drawn: Drawn, tokens: Sequence[FloatArray], tokens_per_document: int
) -> tuple[Total, Total]:
    """Estimate the documents and tokens of all sources.

    Args:
        drawn: sampled blocks of sources.
        tokens: of each of these sources, the tokens of its slices; shape (num_slices,).
        tokens_per_document: tokens added to those of the text in each document.
    """
    documents = [documents_of(sample) for sample in drawn.samples]
    if drawn.has_all_texts:
        rates = [_exact_rate(*pair) for pair in zip(drawn.samples, tokens, strict=True)]
    else:
        rates = _sampled_rates(drawn.samples, tokens)
    triples = zip(drawn.samples, rates, tokens, strict=True)
    texts = [_text_tokens(*triple) for triple in triples]
    all_documents, all_tokens = (_sum(found, drawn.chances) for found in (documents, texts))
    more = all_documents.scaled(tokens_per_document)
    return all_documents, Total(all_tokens.value + more.value, all_tokens.variance + more.variance)


def _exact_rate(sample: SourceSample, tokens: FloatArray) -> Total:
    """Tokens per character, if all texts were encoded."""
    num_characters = sum(block.num_characters for block in sample.blocks)
    return Total(float(tokens.sum()) / max(num_characters, 1))


def _sampled_rates(samples: Sequence[SourceSample], tokens: Sequence[FloatArray]) -> list[Total]:
    """Tokens per character: the mean over slices; long texts have more of them. Sources with few
    slices share theirs.
    """
    found = [
        counts / np.array([len(text) for text in sample.slices], np.float64)
        for sample, counts in zip(samples, tokens, strict=True)
    ]
    few = [rates for rates in found if len(rates) < MIN_SLICES]
    shared = np.concatenate(few) if few else np.zeros(0)
    if len(shared) < MIN_SLICES:
        shared = np.concatenate(found)
    return [_mean(rates if len(rates) >= MIN_SLICES else shared) for rates in found]


def _mean(values: FloatArray) -> Total:
    if not len(values):
        return Total(0.0)
    return Total(float(values.mean()), _variance_of_mean(values, math.inf))


def documents_of(sample: SourceSample) -> Total:
    """Estimate documents: the mean number that begin in a block, times the number of blocks."""
    counts = np.array([block.num_documents for block in sample.blocks], np.float64)
    if not len(counts):
        return Total(0.0)
    if sample.num_records is not None:
        others = sum(block.num_rejected + block.num_empty for block in sample.blocks)
        return Total(sample.num_records * counts.sum() / max(counts.sum() + others, 1))
    value = sample.num_blocks * counts.mean()
    variance = _variance_of_mean(counts, sample.num_blocks) * sample.num_blocks**2
    return Total(value, variance + _error_of_unread(sample, value))


def _text_tokens(sample: SourceSample, rate: Total, tokens: FloatArray) -> Total:
    """Estimate tokens: characters per byte, times bytes, times tokens per character."""
    num_bytes = np.array([block.num_bytes for block in sample.blocks], np.float64)
    characters = np.array([block.num_characters for block in sample.blocks], np.float64)
    if not num_bytes.sum():
        return Total(0.0)
    total = characters.sum() / num_bytes.sum() * sample.num_bytes
    value = rate.value * total
    variance = rate.variance * total**2 + _error_of_unread(sample, value)
    if len(num_bytes) < sample.num_blocks:
        index, in_groups = _tokens_of_groups(sample, rate, tokens, characters)
        in_group = np.bincount(index, num_bytes)
        found = in_groups - in_groups.sum() / num_bytes.sum() * in_group
        between = _variance_of_mean(found, math.inf) * (1 - len(num_bytes) / sample.num_blocks)
        variance += between * (sample.num_bytes / in_group.mean()) ** 2
    return Total(value, variance)


def _tokens_of_groups(
    sample: SourceSample, rate: Total, tokens: FloatArray, characters: FloatArray
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """Blocks of a source in some groups: the group of each block, and the tokens of each group.

    The differences show how much chance there was in choosing the blocks.
    """
    count = max(min(MAX_GROUPS, len(tokens) // MIN_SLICES, len(characters)), 1)
    if count == 1:  # too few slices to compare: assume the same rate in all blocks
        return np.arange(len(characters)), characters * rate.value
    index = np.arange(len(characters)) % count
    of_slice = index[sample.block_of_slice]
    lengths = np.array([len(text) for text in sample.slices], np.float64)
    sums = np.bincount(of_slice, tokens / lengths, count)
    means: FloatArray = sums / np.maximum(np.bincount(of_slice, minlength=count), 1)
    return index, means * np.bincount(index, characters)


def _variance_of_mean(values: FloatArray, population: float) -> float:
    """The variance of a mean of values drawn without replacement."""
    count = len(values)
    if count < 2 or count >= population:
        return 0.0
    return float(values.var(ddof=1) / count * (1 - count / population))


def _error_of_unread(sample: SourceSample, value: float) -> float:
    return float((UNREAD_ERROR * (1 - sample.part_read) * value) ** 2)


def _sum(totals: Sequence[Total], chances: Sequence[float]) -> Total:
    """The total of all sources, from the chosen ones."""
    pairs = list(zip(totals, chances, strict=True))
    certain = [total for total, chance in pairs if chance == 1]
    others = np.array([total.value / chance for total, chance in pairs if chance < 1])
    spread = len(others) * float(others.var(ddof=1)) if len(others) > 1 else 0.0
    return Total(
        sum(total.value for total in certain) + float(others.sum()),
        sum(total.variance for total in certain) + spread,
    )
