"""What a build would take and give, from a sample of the inputs, in seconds."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.kinds import KINDS
from tokenmill.errors import DataError, EngineError, UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.places.access import Access
from tokenmill.read.sources import Source
from tokenmill.read.units import Extent, Unit, choose_unit_bytes, cut_units
from tokenmill.records import DocumentBatch
from tokenmill.run.machine.resources import choose_resources
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.start.preparation import Preparation, prepare, resolve
from tokenmill.store.layout import token_dtype

SAMPLE_BYTES = 1 << 20
MAX_SAMPLES = 12
MAX_SMALL_SAMPLES = 500
"""Small files that are read, so that they are about as many bytes as the samples of large ones."""
INDEX_BYTES_PER_DOCUMENT = 20
TABLE_BYTES_PER_DOCUMENT = 6
START_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Everything but `files` and `input_bytes` is extrapolated from the sample."""

    files: int
    input_bytes: int
    decompressed_bytes: int
    documents: int
    tokens: int
    disk_bytes: int
    shards: int
    seconds: float
    memory_bytes: int
    sample_documents: int
    sample_bytes: int
    sample_rejected: int
    engine: str
    num_workers: int
    eos_id: int


def estimate(recipe: Recipe, tokenizer: object = None) -> Estimate:
    """Encode a sample of at most about 12 MB and extrapolate; writes nothing.

    `tokenizer` is an object to encode with, which the recipe can only name.

    Raises:
        UserError: the recipe cannot be carried out, as a build would say.
    """
    access = Access("sample", recipe.resources.cache_dir)
    resources = choose_resources(recipe.resources)
    prepared = prepare(resolve(recipe, tokenizer, access), access, resources)
    started = time.perf_counter()
    batches = list(sample_batches(prepared))
    read_seconds = time.perf_counter() - started
    texts = [text for batch in batches for text in batch.texts]
    if not texts:
        raise UserError("found no document in the sample", hint="check --text-field and --format")
    encoder, engine = _first_encoder(prepared)
    encoder.encode(texts[:1])
    started = time.perf_counter()
    tokens = len(encoder.encode(texts).ids)
    encode_seconds = time.perf_counter() - started
    sample_bytes = sum(int(batch.record_bytes.sum()) for batch in batches)
    sizes = _decompressed_sizes(prepared.sources, recipe.read.fields)
    total = sum(sizes)
    scale = total / max(sample_bytes, 1)
    documents = round(len(texts) * scale)
    tokens = round((tokens + len(texts) * (len(prepared.boundary.prefix) + 1)) * scale)
    read = recipe.read
    share = min(
        1.0,
        (read.max_documents or documents) / max(documents, 1),
        (read.max_tokens or tokens) / max(tokens, 1),
    )
    documents, tokens = round(documents * share), round(tokens * share)
    item_bytes = token_dtype(prepared.reference.largest_id).itemsize
    per_document = INDEX_BYTES_PER_DOCUMENT + TABLE_BYTES_PER_DOCUMENT
    work = (read_seconds + encode_seconds) * scale * share
    return Estimate(
        files=len(prepared.sources),
        input_bytes=prepared.num_bytes,
        decompressed_bytes=total,
        documents=documents,
        tokens=tokens,
        disk_bytes=tokens * item_bytes + documents * per_document,
        shards=_num_shards(prepared, sizes),
        seconds=START_SECONDS + work / resources.num_workers,
        memory_bytes=resources.memory_bytes,
        sample_documents=len(texts),
        sample_bytes=sample_bytes,
        sample_rejected=sum(len(batch.rejected) for batch in batches),
        engine=engine,
        num_workers=resources.num_workers,
        eos_id=prepared.boundary.eos_id,
    )


def sample_batches(prepared: Preparation) -> Iterator[DocumentBatch]:
    """The first megabyte of some sources; for large plain files, further ones from inside.

    Of Python tokenizers, 64 KiB in place of a megabyte.
    """
    sources = [source for source in prepared.sources if source.num_bytes]
    slow = KINDS[prepared.file.kind].is_slow
    num_bytes = prepared.batch_bytes if slow else SAMPLE_BYTES
    most_bytes, num_samples = MAX_SAMPLES * num_bytes, MAX_SAMPLES
    if not any(source.is_distant for source in sources):
        mean_bytes = prepared.num_bytes // max(len(sources), 1)
        num_samples = min(max(most_bytes // max(mean_bytes, 1), MAX_SAMPLES), MAX_SMALL_SAMPLES)
    chosen = sources[:: max(len(sources) // num_samples, 1)][:num_samples]
    places = max(MAX_SAMPLES // max(len(chosen), 1), 1)
    reader = Reader(prepared.sources, prepared.fields, num_bytes)
    for source in chosen:
        for extent in _extents(source, prepared.fields, places):
            try:
                batch = next(reader.read(extent), None)
            except DataError:
                continue  # the build reports it
            if batch is not None:
                yield batch
                most_bytes -= int(batch.record_bytes.sum())
        if most_bytes <= 0:
            return


def _extents(source: Source, fields: Fields, places: int) -> list[Extent]:
    is_large = source.num_bytes >= 4 * SAMPLE_BYTES
    num_starts = 1
    if is_large:
        with contextlib.suppress(DataError):  # the build reports it
            num_starts = FORMATS[source.format].num_starts(source, fields)
    if num_starts < 4 * SAMPLE_BYTES:  # groups of rows, or none but the first
        return [Extent(source.index)]
    step = num_starts // places
    return [Extent(source.index, step * place, source.num_bytes) for place in range(places)]


def _first_encoder(prepared: Preparation) -> tuple[Encoder, str]:
    """The engine that a build would try first."""
    control = prepared.policies.encode.special_tokens == "control"
    for name in prepared.candidates.names:
        try:
            engine = load_engine(name, prepared.file, control, prepared.resources.cache_bytes)
        except EngineError:
            continue
        return Encoder(engine, prepared.reference.largest_id), name
    raise UserError("no engine can encode this tokenizer")


def _decompressed_sizes(sources: Sequence[Source], fields: Fields) -> list[int]:
    """Size of every source in records; of those that are read over the network, some are asked and
    the others taken to be like them.
    """
    distant = [source for source in sources if source.is_distant]
    asked = distant[:: max(len(distant) // MAX_SAMPLES, 1)][:MAX_SAMPLES]
    known = {source.index: _text_bytes(source, fields) for source in asked}
    ratio = sum(known.values()) / max(sum(source.num_bytes for source in asked), 1)
    return [
        round(source.num_bytes * ratio) if source.is_distant else _text_bytes(source, fields)
        for source in sources
    ]


def _text_bytes(source: Source, fields: Fields) -> int:
    return FORMATS[source.format].text_bytes(source, fields)


def _num_shards(prepared: Preparation, sizes: Sequence[int]) -> int:
    sources: Sequence[Source] = prepared.sources
    unit_bytes = choose_unit_bytes(sources, slow=KINDS[prepared.file.kind].is_slow)
    count = kept_bytes = 0
    for item in cut_units(sources, prepared.fields, unit_bytes):
        if isinstance(item, Unit):
            count += 1
        elif sources[item.source].is_distant and not prepared.policies.read.streaming:
            kept_bytes += sizes[item.source]  # a build keeps them, and cuts them as local files
        else:
            count += max(round(sizes[item.source] / unit_bytes), 1)
    return count + math.ceil(kept_bytes / unit_bytes)
