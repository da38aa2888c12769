"""Sample random parts of sources to estimate totals: the start of a file is not representative.

Samples are blocks of whole records, never records at random offsets: an offset hits long
records more often than short ones. Each record begins in exactly one block, so the mean of the
sampled blocks times their number has no bias.

    plain lines                      cells of equal size, spread over the file; a block is what
                                     begins in a cell
    tables in groups                 random groups, and random blocks of what is read of them
    compressed files, Arrow streams  random blocks of what is decompressed: all of a file, or as
                                     much from its start as takes about a second

Of many files some are sampled, the larger ones with a higher probability.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np

from tokenmill.core.errors import DataError
from tokenmill.read.documents import source_errors
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS, Block, Extent, Parse
from tokenmill.read.source import Source
from tokenmill.read.units import decompressed_bytes

MAX_SOURCES = 500
MAX_DISTANT_SOURCES = 12
"""Limit of remote sources to sample, because each needs several requests."""
DISTANT_BYTES = 12 << 20
"""Bytes to read over the network, for all sources together."""
READ_BYTES = {"none": 1 << 29, "zstd": 1 << 30, "gzip": 1 << 29, "xz": 1 << 27, "bzip2": 1 << 26}
"""Decompressed bytes for all sources together: one to two seconds for each compression."""
PARSED_BYTES = 256 << 20
MIN_BLOCKS = 4
"""Blocks of each sampled source, at least."""


@dataclass(frozen=True, slots=True)
class SampledBlock:
    """A block of parsed records."""

    num_bytes: int
    """Bytes of the records in the decompressed file."""
    record_bytes: int
    num_documents: int
    num_rejected: int
    num_characters: int
    num_empty: int = 0
    """Records with an empty text, which do not count as documents."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to sample, and in what portions."""

    block_bytes: int
    slice_characters: int
    encoded_characters: int
    """Bytes to encode. If not below `parsed_bytes`, all texts of the blocks are encoded whole."""
    parsed_bytes: int = PARSED_BYTES
    """Bytes to parse, for all sources together."""


@dataclass(slots=True)
class SourceSample:
    """Sampled blocks of a source, and estimates of its size."""

    source: Source
    blocks: list[SampledBlock] = field(default_factory=list)
    slices: list[str] = field(default_factory=list)
    """Parts of the texts in these blocks: a random character is in each, one of every `spacing`, so
    a long text has more of them. Or all texts as they are.
    """
    block_of_slice: list[int] = field(default_factory=list)
    num_blocks: float = 0.0
    """Blocks in the whole source, estimated if it was read in part."""
    num_bytes: float = 0.0
    """Bytes of all blocks."""
    num_records: int | None = None
    """Records in the file, if its format stores the number."""
    part_read: float = 1.0
    """For a stream: the share of it that was sampled."""
    read_bytes: int = 0
    """Decompressed bytes that were read to get the blocks."""
    parse_seconds: float = 0.0
    damage: DataError | None = None
    """Why the source has no blocks."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits for one source: bytes to read and bytes to parse."""

    read_bytes: int
    parsed_bytes: int
    block_bytes: int

    @property
    def max_blocks(self) -> int:
        """Number of blocks to parse."""
        return max(self.parsed_bytes // self.block_bytes, MIN_BLOCKS)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Samples of all sources, or of some."""

    samples: list[SourceSample]
    chances: list[float]
    """The probability with which each source was chosen."""
    has_all_texts: bool
    """Whether slices contain all texts of the sampled blocks."""

    @property
    def blocks(self) -> list[SampledBlock]:
        """The sampled blocks of all sources."""
        return [block for sample in self.samples for block in sample.blocks]

    @property
    def num_damaged(self) -> int:
        """The number of damaged sources, which have no blocks."""
        return sum(sample.damage is not None for sample in self.samples)

    @property
    def num_bytes(self) -> float:
        """Decompressed bytes of all sources."""
        pairs = zip(self.samples, self.chances, strict=True)
        return sum(sample.num_bytes / chance for sample, chance in pairs)

    @property
    def read_bytes(self) -> int:
        """Bytes read from the chosen sources."""
        return sum(max(sample.read_bytes, 1) for sample in self.samples)

    @property
    def parsed_bytes(self) -> int:
        """Bytes of all sampled blocks."""
        return sum(block.num_bytes for block in self.blocks)

    @property
    def parse_seconds(self) -> float:
        """Seconds spent parsing the sampled blocks."""
        return sum(sample.parse_seconds for sample in self.samples)

    def sizes(self, sources: Sequence[Source]) -> list[float]:
        """The decompressed size of every source, estimated from the sampled ones."""
        known = {sample.source.index: sample.num_bytes for sample in self.samples}
        on_disk = sum(sample.source.num_bytes for sample in self.samples)
        ratio = sum(known.values()) / max(on_disk, 1)
        return [known.get(source.index, source.num_bytes * ratio) for source in sources]


def draw(
    sources: Sequence[Source], fields: Fields, effort: Effort, rng: np.random.Generator
) -> Drawn:
    """Draw random blocks of sources and random slices of their texts, in one or two seconds."""
    chosen, chances = choose_sources(sources, rng)
    parsed = min(effort.parsed_bytes, sum(map(decompressed_bytes, chosen)))
    spacing = effort.slice_characters * parsed // effort.encoded_characters
    sampler = Sampler(fields, rng, effort.slice_characters, spacing)
    limits = budgets(chosen, effort.block_bytes, effort.parsed_bytes)
    pairs = zip(chosen, limits, strict=True)
    samples = [sampler.sample(source, budget) for source, budget in pairs]
    return Drawn(samples, chances, sampler.takes_all)


def choose_sources(
    sources: Sequence[Source], rng: np.random.Generator
) -> tuple[list[Source], list[float]]:
    """Choose the sources to sample; also return the probability of each.

    It is 1 for all if they are few; otherwise in proportion to size, and 1 for the largest.
    """
    count = MAX_DISTANT_SOURCES if any(s.is_distant for s in sources) else MAX_SOURCES
    if len(sources) <= count:
        return list(sources), [1.0] * len(sources)
    sizes = np.array([source.num_bytes for source in sources], np.float64)
    chances = np.zeros(len(sizes))
    while True:
        rest = chances < 1
        chances[rest] = sizes[rest] / sizes[rest].sum() * (count - (~rest).sum())
        if (chances <= 1).all() or not (chances[rest] >= 1).any():
            break
        chances[chances >= 1] = 1
    order = rng.permutation(len(sizes))
    ends = np.cumsum(chances[order])
    hits = np.searchsorted(ends, rng.random() + np.arange(round(ends[-1])))
    chosen = np.unique(order[np.minimum(hits, len(order) - 1)])
    return [sources[index] for index in chosen], np.minimum(chances[chosen], 1).tolist()


def budgets(
    sources: Sequence[Source], block_bytes: int, parsed_bytes: int = PARSED_BYTES
) -> list[Budget]:
    """The limits for each source, in proportion to its size."""
    total = max(sum(map(decompressed_bytes, sources)), 1)
    found = []
    for source in sources:
        share = decompressed_bytes(source) / total
        if source.is_distant:
            num_bytes = DISTANT_BYTES // len(sources)
            found.append(Budget(num_bytes, num_bytes, min(block_bytes * 4, num_bytes)))
            continue
        read_bytes = max(int(READ_BYTES[source.compression] * share), MIN_BLOCKS * block_bytes)
        found.append(Budget(read_bytes, int(parsed_bytes * share), block_bytes))
    return found


class Sampler:
    """Takes random blocks of sources, and one slice of their texts in every `spacing` characters.

    Encoding whole blocks would leave to chance whether the few longest documents are among them.
    """

    def __init__(
        self, fields: Fields, rng: np.random.Generator, slice_characters: int, spacing: int
    ) -> None:
        self._fields = fields
        self._rng = rng
        self._slice = slice_characters
        self._spacing = spacing
        self.takes_all = spacing <= slice_characters
        self._next = int(rng.integers(max(spacing, 1)))
        """Characters until the next slice."""
        self._parsers: dict[tuple[str, str], Parse] = {}

    def sample(self, source: Source, budget: Budget) -> SourceSample:
        """Parse blocks of one source; none if it is damaged, which the build will report."""
        found = FORMATS[source.format]
        sample = SourceSample(source)
        try:
            with source_errors(source):
                num_starts = found.num_starts(source, self._fields.of(source))
                if num_starts == source.num_bytes > budget.parsed_bytes:
                    self._sample_cells(sample, budget)
                else:
                    self._sample_what_is_read(sample, budget)
        except DataError as error:
            sample = SourceSample(source, damage=error)
        return sample

    def _sample_cells(self, sample: SourceSample, budget: Budget) -> None:
        """Parse the records of one random cell in each of several equal parts of a file."""
        source, size = sample.source, budget.block_bytes
        found = FORMATS[source.format]
        sample.num_blocks = -(-source.num_bytes // size)
        sample.num_bytes = source.num_bytes
        count = min(budget.max_blocks, int(sample.num_blocks))
        edges = np.linspace(0, sample.num_blocks, count + 1).astype(np.int64)
        for cell in self._rng.integers(edges[:-1], edges[1:]).tolist():
            extent = Extent(source.index, cell * size, min((cell + 1) * size, source.num_bytes))
            blocks = found.blocks(source, extent, self._fields.of(source), size)
            self._parse(sample, list(blocks))
            sample.read_bytes += sample.blocks[-1].num_bytes

    def _sample_what_is_read(self, sample: SourceSample, budget: Budget) -> None:
        """Parse random blocks of a whole source, of random groups, or of the start of a stream."""
        source = sample.source
        found, fields = FORMATS[source.format], self._fields.of(source)
        totals = found.totals(source, fields)
        extents = (
            [Extent(source.index)] if totals is None else self._groups(source, totals[0], budget)
        )
        kept: list[Block] = []
        num_read = num_rows = 0
        is_whole = extents == [Extent(source.index)]
        part = 1.0
        with nullcontext() if totals else source.open() as raw:
            for extent in extents:
                left = budget.read_bytes // len(extents)
                for block in found.blocks(source, extent, fields, budget.block_bytes, raw):
                    if left <= 0:
                        is_whole = False
                        break
                    left -= block.num_bytes
                    sample.read_bytes += block.num_bytes
                    num_rows += block.stop - block.start
                    _keep(kept, block, num_read, budget.max_blocks, self._rng)
                    num_read += 1
            if raw and not is_whole:
                part = sample.part_read = min(raw.tell() / source.num_bytes, 1.0)
        for block in _within(kept, budget.parsed_bytes, self._rng):
            self._parse(sample, [block])
        if totals:
            text_bytes, sample.num_records = totals
            part = min(num_rows / max(sample.num_records, 1), 1.0)
        sample.num_blocks = num_read / max(part, 1e-9)
        sample.num_bytes = sample.read_bytes / max(part, 1e-9)
        if totals and not is_whole:
            in_blocks = sum(block.num_bytes for block in sample.blocks)
            in_records = sum(block.record_bytes for block in sample.blocks)
            sample.num_bytes = text_bytes * in_blocks / max(in_records, 1)

    def _groups(self, source: Source, text_bytes: int, budget: Budget) -> list[Extent]:
        """Random groups of a table, within the limit."""
        num_groups = FORMATS[source.format].num_starts(source, self._fields.of(source))
        mean_bytes = max(text_bytes // max(num_groups, 1), budget.block_bytes)
        count = min(max(budget.read_bytes // mean_bytes, MIN_BLOCKS), num_groups)
        if count == num_groups:
            return [Extent(source.index)]
        groups = np.sort(self._rng.choice(num_groups, count, replace=False)).tolist()
        return [Extent(source.index, group, group + 1) for group in groups]

    def _parse(self, sample: SourceSample, blocks: Sequence[Block]) -> None:
        """Parse the records of a sampled block from the pieces that were read."""
        started = time.perf_counter()
        source = sample.source
        fields = self._fields.of(source)
        key = source.format, fields.text
        if key not in self._parsers:
            self._parsers[key] = FORMATS[source.format].parser(fields)
        batches = [self._parsers[key](block, source) for block in blocks]
        found = [text for batch in batches for text in batch.texts]
        texts = [text for text in found if text]
        parsed = SampledBlock(
            num_bytes=sum(block.num_bytes for block in blocks),
            record_bytes=sum(int(batch.record_bytes.sum()) for batch in batches),
            num_documents=len(texts),
            num_rejected=sum(len(batch.rejected) for batch in batches),
            num_characters=sum(map(len, texts)),
            num_empty=len(found) - len(texts),
        )
        sample.blocks.append(parsed)
        slices = texts if self.takes_all else self._slices(texts)
        sample.slices += slices
        sample.block_of_slice += [len(sample.blocks) - 1] * len(slices)
        sample.parse_seconds += time.perf_counter() - started

    def _slices(self, texts: Sequence[str]) -> list[str]:
        found = []
        for text in texts:
            while self._next < len(text):
                start = self._next - self._next % self._slice
                found.append(text[start : start + self._slice])
                self._next += self._spacing
            self._next -= len(text)
        return found


def _keep(
    kept: list[Block], block: Block, num_before: int, count: int, rng: np.random.Generator
) -> None:
    """Keep `count` of all blocks, each with the same probability (reservoir sampling)."""
    if len(kept) < count:
        kept.append(block)
    elif (place := int(rng.integers(num_before + 1))) < count:
        kept[place] = block


def _within(kept: list[Block], num_bytes: int, rng: np.random.Generator) -> list[Block]:
    """Choose blocks with equal probability, about `num_bytes` in total.

    After a long record blocks are as long as it, and many times larger than was asked for.
    """
    count = len(kept) * num_bytes // max(sum(block.num_bytes for block in kept), 1)
    if count >= len(kept) or len(kept) <= MIN_BLOCKS:
        return kept
    chosen = rng.choice(len(kept), max(count, MIN_BLOCKS), replace=False)
    return [kept[number] for number in sorted(chosen.tolist())]
