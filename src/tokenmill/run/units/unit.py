"""One unit from its sources to a finished shard: read, encode, enclose, write."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from tokenmill.boundaries import enclose_documents, join_batches
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import Engine, TextError
from tokenmill.encode.engine_ranking import REFERENCE, load_engine
from tokenmill.encode.exactness import AuditSample, Exam, check_engine
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.spans import SpanEncoder
from tokenmill.encode.special_strings import SpecialStrings
from tokenmill.encode.steps import Step, steps_before_model
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import open_stored_tokenizer
from tokenmill.errors import DataError, EngineError
from tokenmill.read.digests import ReadDigests
from tokenmill.read.documents import Reader, grouped
from tokenmill.records import DocumentBatch, TokenBatch
from tokenmill.run.units.assignment import (
    LONG_BATCH,
    NO_LIMIT,
    Assignment,
    Outcome,
    Receipt,
    Setup,
    Tally,
)
from tokenmill.run.units.careful import Announce, CarefulEncoder, Encoding
from tokenmill.run.units.sampling import UInt64Array, chosen, document_hashes
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import Counts, ExtentEntry
from tokenmill.store.shard import ShardLayout, ShardWriter

_Screened = tuple[DocumentBatch, TokenBatch, UInt64Array]
"""Documents, their ids, and a hash of each."""


@dataclass(slots=True)
class FinishedUnit:
    """A shard that is written but not yet on the disk for good."""

    outcome: Outcome
    _writer: ShardWriter
    _shards_dir: Path

    def commit(self) -> Outcome:
        """Flush the files and give them their names; the receipt may follow."""
        started = time.perf_counter()
        receipt = self.outcome.receipt
        self._writer.flush(receipt.files)
        self._writer.rename(receipt.files, self._shards_dir, receipt.key)
        self.outcome.seconds["fsync"] = time.perf_counter() - started
        return self.outcome


class UnitRunner:
    """Runs units; holds the engine, which is loaded once."""

    def __init__(self, setup: Setup, engine: Engine | None = None) -> None:
        """`engine` is given where this process has it already: a Python tokenizer of its own."""
        started = time.perf_counter()
        self.setup = setup
        control = setup.control_tokens
        engine = engine or load_engine(
            setup.engine, _tokenizer_file(setup), control, setup.cache_bytes
        )
        self.encoder = Encoder(engine, setup.largest_id)
        self.careful_encoder = CarefulEncoder(self.encoder, setup.sources, self._load_steps)
        self.spans = SpanEncoder(lambda: load_reference(_tokenizer_file(setup), control))
        self.reader = Reader(setup.sources, setup.fields, setup.batch_bytes)
        self.special_strings = SpecialStrings(setup.special_tokens)
        self.layout = ShardLayout(
            token_dtype(setup.largest_id),
            tuple(source.name for source in setup.sources),
            setup.fields.keep,
            setup.fields.no_loss is not None,
        )
        self.current_source: int | None = None
        """The source that is being read, for the blame when it turns out to be damaged."""
        self.startup_seconds = time.perf_counter() - started

    def calibrate(self, exam: Exam) -> None:
        """Raise an EngineError where this worker's engine differs from the reference."""
        check_engine(self.encoder, exam)

    def run(
        self,
        assignment: Assignment,
        report: Callable[[Tally], None],
        announce: Announce = lambda encoding: None,
    ) -> FinishedUnit:
        """Run a unit up to files under temporary names; `FinishedUnit.commit` does the rest.

        A careful assignment encodes each document alone. `announce` is told of each then, else of
        long ones.
        """
        attempt = _Attempt(self, assignment, announce)
        try:
            batches = attempt.timed("read", self._batches(assignment))
            # Nothing behind a limit is read: a source's digest covers all that was read of it.
            group_bytes = self.setup.batch_bytes if assignment.limit == NO_LIMIT else 0
            for group in grouped(batches, group_bytes):
                attempt.add(group)
                report(attempt.tally)
                if attempt.limited:
                    break
            return attempt.finish()
        except MemoryError as error:
            attempt.writer.discard()
            raise self._out_of_memory() from error
        except BaseException:
            attempt.writer.discard()
            raise

    def _load_steps(self) -> list[Step]:
        """The tokenizer's steps; a Python object has none that could be run by themselves."""
        if not KINDS[self.setup.tokenizer_kind].is_json:
            return []
        return steps_before_model(_tokenizer_file(self.setup))

    def _out_of_memory(self) -> EngineError:
        source = self.setup.sources[self.current_source or 0]
        return EngineError(
            "not enough memory to encode a document",
            where=f"{source.where}, from position {self.reader.position} on",
            why="documents are encoded whole",
            hint="give the process more memory, lower --workers, or split the document",
        )

    def _batches(self, assignment: Assignment) -> Iterator[DocumentBatch]:
        for extent in assignment.unit.extents:
            if extent.source not in assignment.excluded:
                self.current_source = extent.source
                yield from self.reader.read(extent, assignment.spool)


def _tokenizer_file(setup: Setup) -> TokenizerFile:
    """The tokenizer that the dataset carries, or a Python one, made again."""
    source = setup.tokenizer_source
    if KINDS[setup.tokenizer_kind].is_described:
        from tokenmill.encode.references.python_source import make_tokenizer

        return TokenizerFile(
            setup.tokenizer_kind, b"", origin=source[:80], tokenizer=make_tokenizer(source)
        )
    return open_stored_tokenizer(Path(setup.tokenizer_dir), setup.tokenizer_kind, setup.encoding)


@dataclass(slots=True)
class _Attempt:
    """One try at one unit."""

    runner: UnitRunner
    assignment: Assignment
    announce: Announce
    writer: ShardWriter = field(init=False)
    limited: bool = False
    tally: Tally = field(default_factory=Tally)
    counts: dict[int, Counts] = field(default_factory=dict)
    digests: ReadDigests = field(init=False)
    audited: AuditSample = field(default_factory=AuditSample)
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        setup = self.runner.setup
        stem = f"{self.assignment.unit.key}.{os.getpid()}"
        self.writer = ShardWriter(Path(setup.attempts_dir), stem, self.runner.layout)
        self.digests = ReadDigests(setup.sources)
        self.runner.reader.observe = self.digests.observe

    def add(self, group: Sequence[DocumentBatch]) -> None:
        """Encode, screen and write some batches of documents."""
        for batch in group:
            self.digests.add_rows(batch)
        with self._timing("encode"):
            tokens = self._encode(group)
        screened: list[_Screened] = []
        for batch, part in zip(group, tokens.split([len(b.texts) for b in group]), strict=True):
            screened.append(self._screen(batch, part))
            if self.limited:
                break
        with self._timing("write"):
            self._write(screened)

    def _encode(self, group: Sequence[DocumentBatch]) -> TokenBatch:
        num_bytes = sum(int(batch.record_bytes.sum()) for batch in group)
        try:
            if self.assignment.careful:
                return self._encode_carefully(group)
            if num_bytes > LONG_BATCH * self.runner.setup.batch_bytes:
                first = next(batch for batch in group if len(batch.texts))
                position = int(first.positions[0])
                self.announce(Encoding(source=first.source, position=position, num_bytes=num_bytes))
            return self.runner.encoder.encode([text for batch in group for text in batch.texts])
        except TextError as error:
            batch = next(batch for batch in group if error.text in batch.texts)
            name = self.runner.setup.sources[batch.source].name
            position = batch.positions[batch.texts.index(error.text)]
            raise EngineError(
                "the tokenizer failed on a document",
                where=f"{name}, position {position}",
                why=f"{error.why}, for {error.where}",
                hint=error.hint,
            ) from error
        except EngineError:
            if not self.assignment.careful:
                self._encode_carefully(group)  # the error names the document
            raise

    def _encode_carefully(self, group: Sequence[DocumentBatch]) -> TokenBatch:
        """Encode each document alone, after announcing it."""
        return join_batches(
            [self.runner.careful_encoder.encode(each, self.announce) for each in group]
        )

    def finish(self) -> FinishedUnit:
        """Close the shard and draw up its receipt."""
        with self._timing("write"):
            files = self.writer.close()
        counts = {str(source): counts for source, counts in sorted(self.counts.items())}
        unit = self.assignment.unit
        excluded = set(self.assignment.excluded) & {extent.source for extent in unit.extents}
        receipt = Receipt(
            key=unit.key,
            extents=[
                ExtentEntry(source=extent.source, start=extent.start, stop=extent.stop)
                for extent in unit.extents
            ],
            files=files,
            documents=sum(entry.documents for entry in self.counts.values()),
            tokens=sum(entry.tokens for entry in self.counts.values()),
            counts=counts,
            read_digests=self.digests.of_bytes(),
            row_digests=self.digests.of_rows() or msgspec.UNSET,
            audited=len(self.audited.texts),
            excluded=sorted(excluded),
            limited=self.limited,
            seconds=round(sum(self.seconds.values()), 3),
        )
        shards = Path(self.runner.setup.shards_dir)
        outcome = Outcome(
            receipt=receipt,
            audit_texts=self.audited.texts,
            audit_ids=self.audited.ids,
            seconds=self.seconds,
        )
        return FinishedUnit(outcome, self.writer, shards)

    def timed(self, stage: str, batches: Iterator[DocumentBatch]) -> Iterator[DocumentBatch]:
        """The same batches, the time to get each booked on a stage."""
        while True:
            with self._timing(stage):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def _timing(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        spent = time.perf_counter() - started
        self.seconds[stage] = self.seconds.get(stage, 0.0) + spent

    def _screen(self, batch: DocumentBatch, tokens: TokenBatch) -> _Screened:
        """Apply the limit, sample for the audit, and count."""
        batch, tokens = self._within_limit(batch, tokens)
        hashes = document_hashes(self.runner.setup.sources[batch.source].name, batch)
        self._sample_for_audit(batch, tokens, hashes)
        self._book(batch, tokens)
        self.tally.source = batch.source
        self.tally.position = int(batch.positions[-1]) if len(batch.positions) else 0
        return batch, tokens, hashes

    def _within_limit(
        self, batch: DocumentBatch, tokens: TokenBatch
    ) -> tuple[DocumentBatch, TokenBatch]:
        """Documents are taken in order until the next one would exceed a limit."""
        limit = self.assignment.limit
        if limit == NO_LIMIT:
            return batch, tokens
        written = tokens.lengths > 0
        enclosed = (tokens.lengths + len(self.runner.setup.prefix) + 1) * written
        within = np.ones(len(written), dtype=bool)
        if limit.documents is not None:
            within &= np.cumsum(written) <= limit.documents - self.tally.documents
        if limit.tokens is not None:
            within &= np.cumsum(enclosed) <= limit.tokens - self.tally.tokens
        if within.all():
            return batch, tokens
        self.limited = True
        count = int(np.argmin(within))
        return batch.head(count), tokens.head(count)

    def _book(self, batch: DocumentBatch, tokens: TokenBatch) -> None:
        """Count everything, and refuse what a policy forbids."""
        setup = self.runner.setup
        policy = setup.policies
        special = self.runner.special_strings.counts(batch.texts)
        if special and policy.special_tokens == "error":
            index = next(iter(special))
            self._refuse(batch, index, "a special token in its text", "--special-tokens text")
        unknown: Sequence[int] = ()
        if setup.unk_id is not None:
            unknown = np.flatnonzero(tokens.ids == setup.unk_id).tolist()
        if unknown and policy.unknown == "error":
            index = int(np.searchsorted(tokens.offsets, unknown[0], side="right")) - 1
            self._refuse(batch, index, "an unknown token", "--unknown count")
        written = tokens.lengths > 0
        rejected: dict[str, int] = {}
        for item in batch.rejected:
            rejected[item.reason] = rejected.get(item.reason, 0) + 1
        rejected_bytes = sum(item.num_bytes for item in batch.rejected)
        record_bytes = int(batch.record_bytes.sum())
        document_bytes = int(batch.record_bytes[written].sum())
        documents = int(written.sum())
        num_enclosed = len(tokens.ids) + documents * (len(setup.prefix) + 1)
        counts = Counts(
            records=len(batch.texts) + len(batch.rejected),
            record_bytes=record_bytes + rejected_bytes,
            documents=documents,
            document_bytes=document_bytes,
            tokens=num_enclosed,
            empty=len(batch.texts) - documents,
            empty_bytes=record_bytes - document_bytes,
            rejected=rejected,
            rejected_bytes=rejected_bytes,
            blank_bytes=batch.blank_bytes,
            bom_bytes=batch.bom_bytes,
            special_strings=sum(special.values()),
            unknown_tokens=len(unknown),
        )
        if (first := self.counts.setdefault(batch.source, counts)) is not counts:
            first.add(counts)
        self.tally.bytes += record_bytes + rejected_bytes + batch.blank_bytes
        self.tally.documents += documents
        self.tally.tokens += num_enclosed
        self.tally.rejected += len(batch.rejected)

    def _refuse(self, batch: DocumentBatch, index: int, what: str, option: str) -> NoReturn:
        name = self.runner.setup.sources[batch.source].name
        raise DataError(
            f"a document has {what}",
            where=f"{name}, position {batch.positions[index]}",
            why=f"the recipe forbids it: {batch.texts[index][:80]!r}",
            hint=f"clean the document, or allow it with {option} and --overwrite",
        )

    def _sample_for_audit(
        self, batch: DocumentBatch, tokens: TokenBatch, hashes: UInt64Array
    ) -> None:
        setup = self.runner.setup
        if setup.engine == REFERENCE and not KINDS[setup.tokenizer_kind].may_vary:
            return  # it is what everything else is held against; a Python object may have moods
        # At least one short document of every unit.
        self.audited.add(batch.texts, tokens, hashes, with_short=self.tally.bytes == 0)

    def _write(self, screened: Sequence[_Screened]) -> None:
        setup, runner = self.runner.setup, self.runner
        batches, parts, hashes, no_loss = [], [], [], []
        for batch, tokens, numbers in screened:
            self.writer.reject(batch.rejected)
            written = tokens.lengths > 0
            if not written.all():
                batch, tokens, numbers = (
                    batch.select(written),
                    tokens.without_empty(),
                    numbers[written],
                )
            if batch.no_loss is not None:
                shift = len(setup.prefix)
                no_loss += runner.spans.ranges(batch.texts, batch.no_loss, tokens, shift)
            batches.append(batch)
            parts.append(tokens)
            hashes.append(numbers)
        tokens = join_batches(parts)
        ids, lengths = enclose_documents(tokens, setup.prefix, setup.eos_id, runner.layout.dtype)
        if len(lengths):
            in_validation = chosen(np.concatenate(hashes), setup.validation)
            rows = DocumentRows.of(batches, in_validation, no_loss)
            self.writer.append(rows, ids, lengths)
