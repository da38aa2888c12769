"""Estimate the results and costs of a build from a sample of its inputs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import EngineError, UserError
from tokenmill.core.records import FloatArray, Int64Array, TokenBatch
from tokenmill.encode.boundaries import ends_with
from tokenmill.encode.engine import Encoder
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.kinds import KINDS
from tokenmill.read.source import Access, Source
from tokenmill.read.units import Unit, choose_unit_bytes, cut_units
from tokenmill.reports.sampling import Drawn, Effort, SourceSample, draw
from tokenmill.run.machine import Resources, choose_resources
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.tasks.encode import EncodeTask
from tokenmill.store.layout import token_dtype

STANDARD_ERRORS = 2.2
"""Width of an interval on each side. For large, even samples, 1.96 would give 95 %."""
UNREAD_ERROR = 0.1
"""Assumed difference between the read and the unread part of a stream (one standard error)."""
MAX_GROUPS = 16
MIN_SLICES = 16
"""Sources with fewer slices share a rate."""


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


EFFORT = Effort(block_bytes=64 << 10, slice_characters=4096, encoded_characters=12 << 20)
SLOW_EFFORT = Effort(block_bytes=64 << 10, slice_characters=1024, encoded_characters=768 << 10)
"""Bytes encoded with a Python tokenizer: about a second."""
INDEX_BYTES_PER_DOCUMENT = 20
TABLE_BYTES_PER_DOCUMENT = 6
START_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a build, extrapolated from a sample. `files` and `input_bytes` are exact.

    Intervals (low, high) are 95 % confidence intervals. For compressed files, they assume that
    the rest of a file is like the part that was read.
    """

    files: int
    input_bytes: int
    decompressed_bytes: int
    documents: int
    documents_interval: tuple[int, int]
    tokens: int
    tokens_interval: tuple[int, int]
    disk_bytes: int
    shards: int
    seconds: float
    memory_bytes: int
    sample_documents: int
    sample_bytes: int
    sample_rejected: int
    sample_damaged: int
    """Number of damaged files in the sample. They count as empty."""
    engine: str
    num_workers: int
    eos_id: int


def estimate(recipe: Recipe, tokenizer: object = None, seed: int = 0) -> Estimate:
    """Parse random parts of the inputs, encode some of them, and extrapolate; writes nothing.

    `tokenizer` is an object to encode with, which the recipe can only name. The parts are a
    function of `seed` and of the inputs.

    Raises:
        UserError: the recipe cannot be carried out, as a build would say.
        DataError: the sample has no document, and a file is damaged.
    """
    sample = open_sample(recipe, tokenizer, (EFFORT, SLOW_EFFORT), np.random.default_rng(seed))
    prepared, drawn, encoder = sample.prepared, sample.drawn, sample.encoder
    encoder.encode(["a"])
    started = time.perf_counter()
    tokens_of_slices = _encode(drawn, encoder, prepared)
    encode_seconds = time.perf_counter() - started
    documents, tokens = estimate_totals(drawn, tokens_of_slices, len(prepared.boundary.prefix) + 1)
    num_tokens = sum(float(counts.sum()) for counts in tokens_of_slices)
    seconds = (
        drawn.num_bytes * sample.read_seconds / max(drawn.read_bytes, 1)
        + drawn.num_bytes * drawn.parse_seconds / max(drawn.parsed_bytes, 1)
        + tokens.value * encode_seconds / max(num_tokens, 1)
    )
    share = _share(recipe, documents.value, tokens.value)
    documents, tokens = documents.scaled(share), tokens.scaled(share)
    return _describe(sample, documents, tokens, seconds * share)


def _describe(sample: Sample, documents: Total, tokens: Total, seconds: float) -> Estimate:
    prepared, drawn, resources = sample.prepared, sample.drawn, sample.resources
    item_bytes = token_dtype(prepared.reference.largest_id).itemsize
    per_document = INDEX_BYTES_PER_DOCUMENT + TABLE_BYTES_PER_DOCUMENT
    return Estimate(
        files=len(prepared.sources),
        input_bytes=prepared.num_bytes,
        decompressed_bytes=round(drawn.num_bytes),
        documents=round(documents.value),
        documents_interval=documents.interval,
        tokens=round(tokens.value),
        tokens_interval=tokens.interval,
        disk_bytes=round(tokens.value * item_bytes + documents.value * per_document),
        shards=_num_shards(prepared, drawn.sizes(prepared.sources)),
        seconds=float(
            START_SECONDS + seconds / resources.num_workers
        ),  # not a NumPy number, for JSON
        memory_bytes=resources.memory_bytes,
        sample_documents=sum(block.num_documents for block in drawn.blocks),
        sample_bytes=sum(block.num_bytes for block in drawn.blocks),
        sample_rejected=sum(block.num_rejected for block in drawn.blocks),
        sample_damaged=drawn.num_damaged,
        engine=sample.engine,
        num_workers=resources.num_workers,
        eos_id=prepared.boundary.eos_id,
    )


def _share(recipe: Recipe, documents: float, tokens: float) -> float:
    """Apply the limits of a recipe to the totals."""
    read = recipe.read
    return min(
        1.0,
        (read.max_documents or documents) / max(documents, 1),
        (read.max_tokens or tokens) / max(tokens, 1),
    )


def _encode(drawn: Drawn, encoder: Encoder, prepared: EncodeTask) -> list[FloatArray]:
    """The tokens of every slice of each source."""
    texts = [text for sample in drawn.samples for text in sample.slices]
    counts = lengths_without_eos(encoder.encode(texts), prepared).astype(np.float64)
    stops = np.cumsum([len(sample.slices) for sample in drawn.samples])
    return np.split(counts, stops[:-1])


def lengths_without_eos(tokens: TokenBatch, prepared: EncodeTask) -> Int64Array:
    """Tokens of each document without the EOS that a chat template writes, shape (n,)."""
    if not prepared.policies.chat:
        return tokens.lengths
    return tokens.lengths - ends_with(tokens, prepared.boundary.eos_id)


@dataclass(frozen=True, slots=True)
class Sample:
    """Sampled blocks of the inputs of a build, and the encoder that the build would try first."""

    prepared: EncodeTask
    resources: Resources
    drawn: Drawn
    encoder: Encoder
    engine: str
    read_seconds: float
    """Seconds spent reading the blocks, without parsing."""


def open_sample(
    recipe: Recipe, tokenizer: object, efforts: tuple[Effort, Effort], rng: np.random.Generator
) -> Sample:
    """Draw a sample; `efforts` are the usual one and that of slow tokenizers.

    Raises:
        UserError: the recipe cannot be carried out, as a build would say.
        DataError: the sample has no document, and a file is damaged.
    """
    access = Access("sample", recipe.resources.cache_dir)
    resources = choose_resources(recipe.resources)
    prepared = EncodeTask.resolve(recipe, tokenizer, access).prepared(access)
    started = time.perf_counter()
    sources = [source for source in prepared.sources if source.num_bytes]
    drawn = draw(sources, prepared.fields, efforts[KINDS[prepared.file.kind].is_slow], rng)
    read_seconds = time.perf_counter() - started - drawn.parse_seconds
    if not any(block.num_documents for block in drawn.blocks):
        if damage := next((sample.damage for sample in drawn.samples if sample.damage), None):
            raise damage
        raise UserError("found no document in the inputs", hint="check --text-field and --format")
    for name in prepared.candidates.names:
        try:
            control = prepared.policies.control_tokens
            engine = load_engine(name, prepared.file, control, resources.cache_bytes)
        except EngineError:
            continue
        encoder = Encoder(engine, prepared.reference.largest_id)
        return Sample(prepared, resources, drawn, encoder, name, read_seconds)
    raise UserError("no engine can encode with this tokenizer")


def _num_shards(prepared: EncodeTask, sizes: Sequence[float]) -> int:
    sources: Sequence[Source] = prepared.sources
    unit_bytes = choose_unit_bytes(sources, slow=KINDS[prepared.file.kind].is_slow)
    count, kept_bytes = 0, 0.0
    for item in cut_units(sources, prepared.fields, unit_bytes):
        if isinstance(item, Unit):
            count += 1
            continue
        source = sources[item.source]
        if source.is_distant and not source.in_parts and not prepared.policies.read.streaming:
            kept_bytes += sizes[item.source]  # a build stores them and splits them like local files
        else:
            count += max(round(sizes[item.source] / unit_bytes), 1)
    return count + math.ceil(kept_bytes / unit_bytes)
