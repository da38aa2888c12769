"""One attempt at a unit, with everything that all tasks share: counts, digests, timing, errors."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.core.errors import EngineError
from tokenmill.core.records import DocumentBatch, TokenBatch, UInt64Array
from tokenmill.encode.boundaries import join_batches
from tokenmill.encode.engine import Encoder, Engine, TextError
from tokenmill.encode.exactness import AuditSample
from tokenmill.encode.probe import Step
from tokenmill.read.documents import ReadDigests
from tokenmill.read.source import Source
from tokenmill.run.executor import LONG_BATCH, Assignment, Encoding, Outcome, Receipt, Tally
from tokenmill.run.job import Count, Measure, Setup
from tokenmill.store.manifest import Counts, ExtentEntry, FileEntry

T = TypeVar("T")

Announce = Callable[[Encoding], None]

NO_VALUE = "(none)"
"""The group of documents with no value, or an empty value, in the column."""


@dataclass(slots=True)
class UnitAttempt:
    """One attempt at a unit: its counts, and the calls of its engine."""

    setup: Setup
    assignment: Assignment
    load_steps: Callable[[], list[Step]]
    """Returns the steps before the engine that can run alone."""
    announce: Announce
    limited: bool = False
    """Whether the limit was reached, so that no more groups are needed."""
    tally: Tally = field(default_factory=Tally)
    counts: dict[int, Counts] = field(default_factory=dict)
    sources: dict[int, Source] = field(init=False)
    """The sources that the unit reads, by index."""
    digests: ReadDigests = field(init=False)
    audited: AuditSample = field(init=False)
    seconds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sources = {source.index: source for source in self.assignment.sources}
        self.digests = ReadDigests(self.sources, self.setup.job.fields)
        self.audited = AuditSample(self.setup.audit_share)

    @property
    def source_names(self) -> dict[int, str]:
        """The names of sources, by index."""
        return {index: source.name for index, source in self.sources.items()}

    @property
    def folder(self) -> Path:
        """The folder of the unit's files until it is finished."""
        return Path(self.setup.scratch)

    @property
    def stem(self) -> str:
        """The prefix of the names of these files."""
        return f"{self.assignment.unit.key}.{os.getpid()}"

    def path(self, part: str) -> Path:
        """Return the path of a part."""
        return self.folder / f"{self.stem}.{part}"

    def remove_files(self) -> None:
        """Remove all files of this attempt."""
        for path in self.folder.glob(f"{self.stem}.*"):
            with contextlib.suppress(OSError):  # the next attempt clears its folder
                path.unlink()

    def guarded(
        self, group: Sequence[DocumentBatch], together: Callable[[], T], alone: Callable[[], T]
    ) -> T:
        """Call `together` for a group, or `alone` after a crash and to find a failing document.

        Raises:
            EngineError: the engine failed. The error names the document.
        """
        num_bytes = sum(int(batch.record_bytes.sum()) for batch in group)
        try:
            if self.assignment.careful:
                return alone()
            if num_bytes > LONG_BATCH * self.setup.batch_bytes:
                first = next(batch for batch in group if len(batch.texts))
                position = int(first.positions[0])
                self.announce(Encoding(source=first.source, position=position, num_bytes=num_bytes))
            return together()
        except TextError as error:
            batch = next(batch for batch in group if error.text in batch.texts)
            name = self.sources[batch.source].name
            position = batch.positions[batch.texts.index(error.text)]
            raise EngineError(
                "the tokenizer failed on a document",
                where=f"{name}, position {position}",
                why=f"{error.why}, for {error.where}",
                hint=error.hint,
            ) from error
        except EngineError:
            if not self.assignment.careful:
                alone()  # the error names the document
            raise

    def encode(self, encoder: Encoder, group: Sequence[DocumentBatch]) -> TokenBatch:
        """Encode all documents of a group, and measure the time.

        Raises:
            EngineError: the engine failed. The error names the document.
        """

        def call(text: str) -> TokenBatch:
            return encoder.encode([text])

        def alone() -> TokenBatch:
            parts = (self.each(batch, encoder.name, call) for batch in group)
            return join_batches([tokens for part in parts for tokens in part])

        with self.timing("encode"):
            texts = [text for batch in group for text in batch.texts]
            return self.guarded(group, lambda: encoder.encode(texts), alone)

    def each(self, batch: DocumentBatch, engine: str, call: Callable[[str], T]) -> list[T]:
        """Return the result of `call`, which calls `engine`, for each document.

        Runs the steps of a tokenizer and its engine on one document at a time, and announces each,
        for units that failed in batches: if the worker then hangs or dies, the main process knows
        the document and the step.

        Raises:
            EngineError: a document failed. The error names its source, its position and the step.
        """
        return [self._call(batch, index, engine, call) for index in range(len(batch.texts))]

    def _call(self, batch: DocumentBatch, index: int, engine: str, call: Callable[[str], T]) -> T:
        text, position = batch.texts[index], int(batch.positions[index])
        encoding = Encoding(
            source=batch.source, position=position, num_bytes=int(batch.record_bytes[index])
        )
        try:
            for encoding.step, step in self.load_steps():
                self.announce(encoding)
                step(text)
            encoding.step = f"engine {engine}"
            self.announce(encoding)
            return call(text)
        except (KeyboardInterrupt, SystemExit, MemoryError, TextError):
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            why = getattr(error, "why", "") or f"{type(error).__name__}: {error}"
            raise EngineError(
                "the tokenizer failed on a document",
                where=f"{self.sources[batch.source].name}, position {position}",
                why=f"{encoding.step}: {why}",
                hint="remove the document, or use another tokenizer",
            ) from error

    def hashes(self, batch: DocumentBatch) -> UInt64Array:
        """Return a hash of each document's id, or of its position, of shape (n,)."""
        return document_hashes(self.sources[batch.source].name, batch)

    def sample(self, batch: DocumentBatch, tokens: TokenBatch) -> None:
        """Sample documents for the audit: a share, and at least one short one of each unit."""
        hashes = place_hashes(self.sources[batch.source].name, batch)
        self.audited.add(batch.texts, tokens, hashes, with_short=self.tally.bytes == 0)

    def drawn(self, batch: DocumentBatch) -> list[str]:
        """Return the texts that `sample` would sample."""
        hashes = place_hashes(self.sources[batch.source].name, batch)
        chosen = self.audited.draw(batch.texts, hashes, with_short=self.tally.bytes == 0)
        return [batch.texts[index] for index in chosen]

    def book(self, batch: DocumentBatch, written: int, written_bytes: int, extra: Counts) -> None:
        """Count a batch with `written` documents that are not empty.

        `extra` holds the other counts: tokens, special strings and unknown tokens.
        """
        rejected: dict[str, int] = {}
        for item in batch.rejected:
            rejected[item.reason] = rejected.get(item.reason, 0) + 1
        rejected_bytes = sum(item.num_bytes for item in batch.rejected)
        record_bytes = int(batch.record_bytes.sum())
        counts = msgspec.structs.replace(
            extra,
            records=len(batch.texts) - batch.num_further + len(batch.rejected),
            further=batch.num_further or msgspec.UNSET,
            record_bytes=record_bytes + rejected_bytes,
            documents=written,
            document_bytes=written_bytes,
            empty=len(batch.texts) - written,
            empty_bytes=record_bytes - written_bytes,
            rejected=rejected,
            rejected_bytes=rejected_bytes,
            blank_bytes=batch.blank_bytes,
            bom_bytes=batch.bom_bytes,
        )
        if (first := self.counts.setdefault(batch.source, counts)) is not counts:
            first.add(counts)
        self.tally.bytes += record_bytes + rejected_bytes + batch.blank_bytes
        self.tally.documents += written
        self.tally.tokens += counts.tokens
        self.tally.rejected += len(batch.rejected)
        self.tally.source = batch.source
        self.tally.position = int(batch.positions[-1]) if len(batch.positions) else 0

    def outcome(self, files: list[FileEntry]) -> Outcome:
        """Return the receipt, with the documents to audit before it counts."""
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
            audit_share=self.audited.share,
            audit_drawn=self.audited.num_drawn,
            excluded=sorted(excluded),
            limited=self.limited,
            seconds=round(sum(self.seconds.values()), 3),
            input_bytes=unit.num_bytes,
        )
        return Outcome(
            receipt=receipt,
            audit_texts=self.audited.texts,
            audit_ids=self.audited.ids,
            seconds=self.seconds,
        )

    def timed(self, stage: str, batches: Iterator[DocumentBatch]) -> Iterator[DocumentBatch]:
        """Yield the batches, and add the time to get each to a stage."""
        while True:
            with self.timing(stage):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    @contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add the time of the enclosed block to a stage."""
        started = time.perf_counter()
        yield
        spent = time.perf_counter() - started
        self.seconds[stage] = self.seconds.get(stage, 0.0) + spent


def groups_of(task: Count | Measure, batch: DocumentBatch) -> list[str]:
    """Return the group of each document, `NO_VALUE` for documents without one."""
    if task.column:
        return [value or NO_VALUE for value in batch.columns[task.column]]
    return [task.groups[batch.source] if task.groups else ""] * len(batch.texts)


class UnitTask(Protocol):
    """One unit of a task. Writes its files to `UnitAttempt.path`."""

    def add(self, group: Sequence[DocumentBatch]) -> None:
        """Process and count some batches of documents."""

    def close(self) -> list[FileEntry]:
        """Finish and return the files. Empty files are removed."""

    def discard(self) -> None:
        """Remove what was written."""


class TaskRunner(Protocol):
    """The part of a task that a worker loads once."""

    encoder: Encoder
    """The engine that takes the exam."""

    @property
    def reference(self) -> Engine:
        """What its ids are compared with; loaded when it is first needed."""

    def steps(self) -> list[Step]:
        """Return the steps before the engine that can run alone, to find the one that fails."""

    def begin(self, attempt: UnitAttempt) -> UnitTask:
        """Start a unit."""


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def place_hashes(source_name: str, batch: DocumentBatch) -> UInt64Array:
    """Return a hash of each document's source and position, of shape (n,).

    The mixing function is splitmix64 (Steele, Lea and Flood, 2014).
    """
    key = np.uint64(xxhash.xxh3_64_intdigest(source_name.encode()))
    with np.errstate(over="ignore"):
        x = (batch.positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN + key
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: UInt64Array = x ^ (x >> np.uint64(31))
    return hashes


def document_hashes(source_name: str, batch: DocumentBatch) -> UInt64Array:
    """Return a hash of each document's id, else of its source and position, of shape (n,)."""
    hashes = place_hashes(source_name, batch)
    for index, name in enumerate(batch.ids or ()):
        if name is not None:
            hashes[index] = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"))
    return hashes


def chosen(hashes: UInt64Array, share: float) -> npt.NDArray[np.bool_]:
    """Choose about `share` of the documents, always the same ones. Returns shape (n,)."""
    return hashes < np.uint64(min(int(share * 2**64), 2**64 - 1))
