"""Lengths of the documents of files: of all of them, or of a sample with its error.

A sample is made of random blocks of whole records (`reports/sampling.py`), all of whose documents
are encoded whole. How far a figure may be off is told by the delete-a-group jackknife (Kott 2001,
Journal of Official Statistics 17): the blocks, or the files where only some were drawn, are put
into 16 groups, every figure is computed without each of the groups, and the spread of the results
is its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Advance, FloatArray, Int64Array
from tokenmill.reports.estimate import (
    STANDARD_ERRORS,
    documents_of,
    lengths_without_eos,
    open_sample,
)
from tokenmill.reports.lengths.counts import LengthCounts
from tokenmill.reports.sampling import Drawn, Effort, SourceSample
from tokenmill.run.recipe.options import Recipe

EFFORT = Effort(32 << 10, 1, encoded_characters=24 << 20, parsed_bytes=24 << 20)
SLOW_EFFORT = Effort(8 << 10, 1, encoded_characters=768 << 10, parsed_bytes=768 << 10)
"""Of Python tokenizers: about a second."""
NUM_GROUPS = 16
CALL_DOCUMENTS = 1000

Statistics = Callable[[LengthCounts], FloatArray]


@dataclass(frozen=True, slots=True)
class Sampled:
    """Which documents of files were read and encoded."""

    documents: int
    num_bytes: int
    """What their records take in the decompressed files."""
    input_bytes: int
    """Decompressed bytes of all files, estimated if they were read in part."""
    rejected: int
    damaged: int
    """Files; they count as empty."""
    engine: str
    is_whole: bool
    """Whether these are all documents, so that nothing is estimated."""


@dataclass(frozen=True, slots=True)
class _Documents:
    """Encoded documents of one source."""

    sample: SourceSample
    chance: float
    lengths: Int64Array
    """Shape (n,): of each document, in tokens."""
    blocks: Int64Array
    """Shape (n,): the sampled block of each."""

    @property
    def is_whole(self) -> bool:
        sample = self.sample
        return sample.part_read == 1 and len(sample.blocks) >= sample.num_blocks - 1e-6

    def weight(self, left_out: Sequence[int] = ()) -> float:
        """How many documents of all sources one document of a sampled block represents.

        By the number of records, where the file says it; otherwise by bytes, as records of one file
        are alike in what they take beside their text. Without the blocks that are `left_out`.
        """
        sample = self.sample
        blocks = [b for number, b in enumerate(sample.blocks) if number not in left_out]
        if sample.num_records is not None:
            found = sum(block.num_documents for block in blocks)
            return documents_of(sample).value / max(found, 1) / self.chance
        return sample.num_bytes / max(sum(b.num_bytes for b in blocks), 1) / self.chance


@dataclass(frozen=True, slots=True)
class LengthSample:
    """The lengths of documents that were read from files."""

    counts: LengthCounts
    """Of all documents; extrapolated from the sample."""
    sampled: Sampled
    sources: list[_Documents]

    def margins(self, statistics: Statistics, rng: np.random.Generator) -> FloatArray | None:
        """95 % margins of error of each figure; None if they cannot be estimated.

        It is zero where all documents were read. Of a compressed file that was read in part, it
        holds if the rest is like what was read.
        """
        if self.sampled.is_whole:
            return np.zeros(len(statistics(self.counts)))
        units = [
            (number, unit) for number, found in enumerate(self.sources) for unit in _units(found)
        ]
        num_groups = min(NUM_GROUPS, len(units))
        if num_groups < 2:
            return None
        groups = rng.permutation(len(units)) % num_groups
        found = []
        for group in range(num_groups):
            left_out = {unit for unit, g in zip(units, groups, strict=True) if g == group}
            found.append(statistics(_extrapolated(self.sources, left_out)))
        values = np.array(found)
        variance = ((values - values.mean(axis=0)) ** 2).sum(axis=0) * (num_groups - 1) / num_groups
        margins: FloatArray = STANDARD_ERRORS * np.sqrt(variance)
        return margins


def sample_lengths(
    recipe: Recipe, tokenizer: object, rng: np.random.Generator, advance: Advance
) -> LengthSample:
    """Encode the documents of the inputs of a recipe, or random ones of about 24 MB of them.

    Raises:
        UserError: the inputs or the tokenizer cannot be used, as a build would say.
        DataError: no document was found, and a file is damaged.
    """
    sample = open_sample(recipe, tokenizer, (EFFORT, SLOW_EFFORT), rng)
    drawn, prepared = sample.drawn, sample.prepared
    texts = [text for each in drawn.samples for text in each.slices]
    lengths = np.zeros(len(texts), np.int64)
    for start in range(0, len(texts), CALL_DOCUMENTS):
        advance("encode", start, len(texts))
        found = sample.encoder.encode(texts[start : start + CALL_DOCUMENTS])
        lengths[start : start + CALL_DOCUMENTS] = lengths_without_eos(found, prepared)
    lengths += len(prepared.boundary.prefix) + 1
    documents = list(_by_source(drawn, lengths))
    sampled = Sampled(
        documents=len(texts),
        num_bytes=sum(block.num_bytes for block in drawn.blocks),
        input_bytes=round(drawn.num_bytes),
        rejected=sum(block.num_rejected for block in drawn.blocks),
        damaged=drawn.num_damaged,
        engine=sample.engine,
        is_whole=all(each.chance == 1 and each.is_whole for each in documents),
    )
    counts = _extrapolated(documents, set())
    return LengthSample(counts, sampled, documents)


def _by_source(drawn: Drawn, lengths: Int64Array) -> Iterator[_Documents]:
    start = 0
    for sample, chance in zip(drawn.samples, drawn.chances, strict=True):
        stop = start + len(sample.slices)
        blocks = np.array(sample.block_of_slice, np.int64)
        yield _Documents(sample, chance, lengths[start:stop], blocks)
        start = stop


def _units(found: _Documents) -> list[int]:
    """What chance decided on: the source itself (-1), its blocks, or nothing."""
    if found.chance < 1:
        return [-1]
    return [] if found.is_whole else list(range(len(found.sample.blocks)))


def _extrapolated(sources: Sequence[_Documents], left_out: set[tuple[int, int]]) -> LengthCounts:
    """Counts of all documents, by those of the sampled blocks that are not left out."""
    drawn = sum(found.chance < 1 for found in sources)
    drawn_left = drawn - sum(block == -1 for _, block in left_out)
    lengths, weights = [], []
    for number, found in enumerate(sources):
        if (number, -1) in left_out:
            continue
        blocks = [block for source, block in left_out if source == number]
        weight = found.weight(blocks)
        if found.chance < 1:
            weight *= drawn / max(drawn_left, 1)
        kept = found.lengths[~np.isin(found.blocks, blocks)]
        lengths.append(kept)
        weights.append(np.full(len(kept), weight))
    return _rounded(np.concatenate(lengths), np.concatenate(weights))


def _rounded(lengths: Int64Array, weights: FloatArray) -> LengthCounts:
    """Whole numbers of documents: of those up to any length, the sum is off by at most a half."""
    order = np.argsort(lengths, kind="stable")
    sums = np.rint(np.cumsum(weights[order])).astype(np.int64)
    return LengthCounts.weighted(lengths[order], np.diff(sums, prepend=0))
