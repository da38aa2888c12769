"""The interface of executors, and what the main process and its workers tell each other.

An executor starts units in places where they run, and reports events; it decides nothing.
`session.py` decides the order of units, applies limits, retries crashed units, and accepts results.
A new executor is therefore one module: it sends `Setup` and each `Assignment` to the place where a
`UnitRunner` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import EngineError, TokenmillError
from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import Exam
from tokenmill.read.source import Source
from tokenmill.read.units import Unit
from tokenmill.run.job import Limit, Setup
from tokenmill.store.files import storage_error
from tokenmill.store.manifest import Counts, ExtentEntry, FileEntry, Found

RECEIPTS = "work/receipts"
LONG_BATCH = 2
"""Batches larger than this multiple of the usual size are announced, because they may take long."""


class Preload(msgspec.Struct, tag="preload", frozen=True, kw_only=True):
    """To a waiting worker: load the engine that it will probably need."""

    path: str
    """A copy of the tokenizer's file."""
    kind: str
    encoding: str
    control_tokens: bool
    engine: str
    cache_bytes: int


class Calibrate(msgspec.Struct, tag="calibrate", kw_only=True):
    """To a worker: encode these texts and compare the ids."""

    texts: list[str]
    ids: list[int]
    offsets: list[int]


class Assignment(msgspec.Struct, tag="run", frozen=True, kw_only=True):
    """A unit that a worker must run."""

    unit: Unit
    sources: list[Source]
    """The sources that the unit reads."""
    spool: Path | None
    excluded: list[int]
    """Indexes of damaged sources, which are left out."""
    limit: Limit
    careful: bool = False
    """Whether to encode each document alone and announce it, because the unit has crashed."""


Command = Preload | Setup | Calibrate | Assignment


class Tally(msgspec.Struct, kw_only=True):
    """The progress of a unit, reported after each batch."""

    source: int = 0
    position: int = 0
    bytes: int = 0
    documents: int = 0
    tokens: int = 0
    rejected: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts of another tally."""
        self.bytes += other.bytes
        self.documents += other.documents
        self.tokens += other.tokens
        self.rejected += other.rejected


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a finished unit: what was read and written, with digests."""

    key: str
    extents: list[ExtentEntry]
    files: list[FileEntry]
    """The unit's files, named by their part: bin, idx, xxh3, parquet and jsonl for a shard."""
    documents: int
    tokens: int
    counts: dict[str, Counts]
    """Counts by index of the source."""
    read_digests: dict[str, str]
    """The xxh3-128 of the decompressed bytes that were read, by index of the source."""
    row_digests: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Digests of the rows of tables, by index of the source.

    They cover columns that the digests of the texts do not.
    """
    audited: int
    audit_share: float | msgspec.UnsetType = msgspec.UNSET
    """The share of documents drawn for the audit. UNSET if no audit was needed."""
    audit_drawn: int | msgspec.UnsetType = msgspec.UNSET
    """Audited documents that were drawn by the share. The others are short documents."""
    excluded: list[int]
    """Damaged sources that were left out."""
    limited: bool = False
    """Whether the unit stopped at --max-documents or --max-tokens."""
    seconds: float
    """The time that the worker needed."""
    input_bytes: int | msgspec.UnsetType = msgspec.UNSET
    """See `Unit.num_bytes`."""
    found: Found | msgspec.UnsetType = msgspec.UNSET
    """Only for token files of another tool."""
    digest: str = ""

    def is_like(self, other: Receipt) -> bool:
        """Whether both receipts have the same records and the same output bytes."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name not in _CIRCUMSTANCES
        )


_CIRCUMSTANCES = ("seconds", "input_bytes", "audited", "audit_share", "audit_drawn", "digest")


def receipt_name(key: str) -> str:
    """Return the name of a unit's receipt in the output."""
    return f"{RECEIPTS}/{key}.json"


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """A worker has loaded its engine."""

    seconds: float


class Calibrated(msgspec.Struct, tag="calibrated", frozen=True):
    """A worker's engine has passed the exam, so its results count."""


class Encoding(msgspec.Struct, tag="encoding", kw_only=True):
    """A worker starts to encode a document, or a batch with long documents. Only for the pool."""

    source: int
    position: int
    num_bytes: int
    step: str = ""
    """For example "normalizer", "pre-tokenizer" or "engine tokenizers". "" for a batch."""


class Advanced(msgspec.Struct, tag="advanced", frozen=True):
    """A worker has finished another batch of a unit."""

    key: str
    tally: Tally


class Encoded(msgspec.Struct, tag="encoded", frozen=True):
    """A unit is written, and its files are being flushed."""

    key: str
    full: bool = False
    """Whether the worker's memory has grown beyond its share, so that it takes no more units."""


class Outcome(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    """The result of a unit: its files have their final names, so its receipt can be written."""

    receipt: Receipt
    audit_texts: list[str]
    """The documents that the main process must audit before the unit counts."""
    audit_ids: list[list[int]]
    difference: ErrorRecord | None = None
    """What an audit of the worker's own has found."""
    seconds: dict[str, float]
    """Seconds by stage. Those of a build are read, encode, write, fsync, and audit in a worker."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """An error ended a unit, or a worker's engine if the key is ""."""

    key: str
    error: ErrorRecord
    source: int | None = None
    """The index of the source that was being read."""


class Crashed(msgspec.Struct, tag="crashed", frozen=True):
    """A worker died while it ran a unit, or was killed. The session may run the unit again."""

    key: str
    what: str
    """For example "a worker died"."""
    why: str
    where: str = ""
    """The document. "" if only the last finished batch is known."""
    hint: str = (
        "remove the document at that position or use another tokenizer; if memory is short, "
        "lower --workers or raise --memory"
    )


class Gone(msgspec.Struct, tag="gone", frozen=True):
    """A worker has ended. The session hands out its unfinished units again."""

    keys: tuple[str, ...]
    """The worker's units that did not crash."""
    exam: str = ""
    """How it died, if it died on the calibration texts."""
    was_full: bool = False
    """Whether it was replaced because its memory had grown."""


Event = Loaded | Calibrated | Advanced | Encoded | Outcome | Failed | Crashed | Gone
"""What a session hears of its workers."""
Report = Loaded | Calibrated | Encoding | Advanced | Encoded | Outcome | Failed | Crashed
"""What a worker process sends."""


def failure(key: str, error: BaseException, source: int | None = None) -> Failed:
    """Return the event for an error of any kind."""
    if isinstance(error, OSError) and not isinstance(error, TokenmillError):
        error = storage_error(error, "read or write a file")
    elif isinstance(error, MemoryError):
        hint = "raise --memory, or lower --workers"
        error = EngineError("a worker ran out of memory", where=key, why=str(error), hint=hint)
    return Failed(key, ErrorRecord.of(error, where=f"unit {key}"), source)


@dataclass(frozen=True, slots=True)
class Phase:
    """What all units of a phase share: one engine, and the exam that its workers must pass."""

    setup: Setup
    """The setup of a worker. Can be sent to other processes as JSON."""
    sources: Sequence[Source]
    """All sources. Each assignment carries only those that it reads."""
    exam: Future[Exam]
    """The exam that the engine of every worker must pass."""
    reference: Engine
    """The reference that audits compare with."""
    local_engine: Callable[[], Engine | None] | None = None
    """Creates the engine of a worker in this process; see `Task.local_engine`."""
    max_units: int | None = None
    """The most units that will be started. None if unknown."""
    is_repeated: bool = False
    """Whether the only unit was already encoded once without a crash."""


Tell = Callable[[int, Event], None]
"""Receives the number of a worker and an event, in the thread that called the executor.

May raise to end the phase."""


class Workers(Protocol):
    """The workers of a phase. All methods but `wake` are called from one thread."""

    def room(self) -> int:
        """Return how many units can be started now."""

    def start(self, assignment: Assignment) -> None:
        """Start a unit. A `careful` one has crashed before and needs a fresh worker."""

    def wait(self, seconds: float) -> None:
        """Report events. Returns after at most `seconds`, or after `wake`."""

    def wake(self) -> None:
        """End a wait, because there may be new units. Called from other threads."""

    def end(self) -> None:
        """Stop all workers of the phase at once."""

    def pids(self) -> set[int]:
        """Return the process ids of workers on this machine, for CPU and memory figures."""


class Executor(Protocol):
    """Starts workers."""

    def begin(self, phase: Phase, tell: Tell) -> Workers:
        """Start workers that load the engine and take the exam."""
