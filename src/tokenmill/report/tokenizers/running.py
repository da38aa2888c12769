"""The documents of a corpus, measured in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.encode.encoder import Encoder
from tokenmill.encode.exactness import AuditSample, audit
from tokenmill.errors import UserError
from tokenmill.measure.measuring import OFFSETS_BYTES, Measurer
from tokenmill.measure.tallies import Tally
from tokenmill.read.documents import Reader, grouped
from tokenmill.read.units import Extent, decompressed_bytes
from tokenmill.records import Advance, DocumentBatch
from tokenmill.report.tokenizers.corpus import BY_SOURCE, Corpus
from tokenmill.report.tokenizers.subject import Subject
from tokenmill.run.start.inputs import sample_texts
from tokenmill.run.units.sampling import document_hashes

BATCH_BYTES = 1 << 20
MAX_LENGTH = 1 << 24
NO_VALUE = "(none)"
"""The group of documents without a value in the column."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """How texts are measured."""

    words: str
    """The rule by which they are cut into words."""
    sequence_lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        for length in self.sequence_lengths:
            if not 1 <= length <= MAX_LENGTH:
                why = f"got {length:,}; it may be from 1 to {MAX_LENGTH:,} tokens"
                raise UserError("a sequence length is out of bounds", why=why)


def measure(subject: Subject, corpus: Corpus, how: Measuring, advance: Advance) -> Tally:
    """What a tokenizer makes of all documents of a corpus.

    Raises:
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or the engine differs from the reference.
    """
    sample = sample_texts(corpus.sources, corpus.fields)
    encoder = Encoder(subject.exact_engine(sample), subject.reference.largest_id)
    decompressed = sum(map(decompressed_bytes, corpus.sources))
    share = min(OFFSETS_BYTES / max(decompressed, 1), 1.0)
    measurer = Measurer(subject.measured, how.words, how.sequence_lengths, share)
    audited = AuditSample()
    for batches in grouped(_batches(corpus, subject.name, advance), BATCH_BYTES):
        measurer.tally.num_rejected += sum(len(batch.rejected) for batch in batches)
        texts = [text for batch in batches for text in batch.texts]
        if not texts:
            continue
        names = [corpus.sources[batch.source].name for batch in batches]
        pairs = list(zip(names, batches, strict=True))
        hashes = np.concatenate([document_hashes(name, batch) for name, batch in pairs])
        tokens = encoder.encode(texts)
        audited.add(texts, tokens, hashes, with_short=not audited.texts)
        groups = [group for name, batch in pairs for group in groups_of(batch, name, corpus.by)]
        measurer.add(texts, tokens, groups, hashes)
    audit(encoder.name, audited.texts, audited.ids, subject.reference)
    return measurer.tally


def groups_of(batch: DocumentBatch, source_name: str, by: str | None) -> Sequence[str]:
    """The group of each document of a batch."""
    if by is None:
        return [""] * len(batch.texts)
    if by == BY_SOURCE:
        return [source_name] * len(batch.texts)
    return [NO_VALUE if value is None else value for value in batch.columns[by]]


def _batches(corpus: Corpus, stage: str, advance: Advance) -> Iterator[DocumentBatch]:
    reader = Reader(corpus.sources, corpus.fields, BATCH_BYTES)
    done = 0
    for source in corpus.sources:
        advance(stage, done, corpus.num_bytes)
        yield from reader.read(Extent(source.index))
        done += source.num_bytes
    advance(stage, done, corpus.num_bytes)
