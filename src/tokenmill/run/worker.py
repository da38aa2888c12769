"""A worker process: it loads an engine, takes the exam, and runs units one after another."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import psutil

from tokenmill.core.child import Parent
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import EngineError
from tokenmill.core.records import DocumentBatch, TokenBatch
from tokenmill.core.streams import lasting_streams
from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import REFERENCE, load_engine
from tokenmill.encode.exactness import Exam, audit, check_engine
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.documents import Reader, grouped
from tokenmill.read.source import Source
from tokenmill.run.executor import (
    Advanced,
    Assignment,
    Calibrate,
    Calibrated,
    Command,
    Crashed,
    Encoded,
    Loaded,
    Outcome,
    Preload,
    Tally,
    failure,
    receipt_name,
)
from tokenmill.run.job import NO_LIMIT, Count, Encode, Measure, Setup
from tokenmill.run.units.attempt import Announce, TaskRunner, UnitAttempt
from tokenmill.run.units.encode import EncodeRunner
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import MANIFEST_NAME
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store

WITHIN_UNIT = 2
"""The multiple of its allowed growth at which a worker stops in the middle of a unit."""
LONG_BATCHES = 4
"""Batches larger than this multiple of the usual size hold a long record, and are not checked."""


EngineKey = tuple[object, ...]
"""What decides an engine: of a tokenizer its digest, kind and control tokens, then its name and the
size of its cache."""


class Worker:
    """Runs units. A second thread flushes finished units."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._finished: queue.SimpleQueue[FinishedUnit] = queue.SimpleQueue()
        self._reported = 0.0

    def run(self) -> None:
        """Handle commands until this process ends."""
        preloaded: dict[EngineKey, tuple[Engine, float]] = {}
        while not isinstance(setup := self._parent.receive()[0], Setup):
            preloaded = preload(setup)
        threading.Thread(target=self._commit_all, daemon=True).start()
        try:
            engine, loading = preloaded.get(engine_key(setup), (None, 0.0))
            runner = UnitRunner(setup, engine)
        except BaseException as error:
            self._parent.send(failure("", error))
            raise SystemExit(0) from None
        growth = Growth(setup.growth_bytes, setup.batch_bytes)
        self._parent.send(Loaded(loading + runner.startup_seconds))
        while True:
            command, _ = self._parent.receive()
            if isinstance(command, Calibrate):
                self._calibrate(runner, command)
            else:
                self._run_unit(runner, command, growth)

    def _calibrate(self, runner: UnitRunner, command: Calibrate) -> None:
        ids = np.array(command.ids, np.uint32)
        offsets = np.array(command.offsets, np.int64)
        try:
            runner.calibrate(Exam(command.texts, TokenBatch(ids, offsets)))
        except BaseException as error:
            self._parent.send(failure("", error))
        else:
            self._parent.send(Calibrated())

    def _run_unit(self, runner: UnitRunner, command: Assignment, growth: Growth) -> None:
        key, done = command.unit.key, Tally()

        def report(tally: Tally) -> None:
            nonlocal done
            done = tally
            growth.check(tally.bytes)
            # A careful unit reports at once that the announced document is done.
            now, seconds = time.monotonic(), runner.setup.report_seconds
            if command.careful or now - self._reported >= seconds:
                self._reported = now
                self._parent.send(Advanced(key, tally))

        try:
            finished = runner.run(command, report, self._parent.send)
        except GrownTooFar as error:
            name = next(each.name for each in command.sources if each.index == done.source)
            self._parent.send(
                Crashed(
                    key,
                    "a worker exceeded its share of memory",
                    why=f"grew by {error.grown_bytes:,} bytes; its share allows "
                    f"{error.allowed_bytes:,} per unit",
                    where=f"{name}, after position {done.position}",
                    hint="raise --memory or lower --workers; a Python tokenizer may leak memory",
                )
            )
            return
        except BaseException as error:
            self._parent.send(failure(key, error, runner.current_source))
        else:
            self._finished.put(finished)
        self._parent.send(Encoded(key, full=growth.is_full()))

    def _commit_all(self) -> None:
        while True:
            finished = self._finished.get()
            try:
                self._parent.send(finished.commit())
            except BaseException as error:
                self._parent.send(failure(finished.outcome.receipt.key, error))


def engine_key(setup: Setup) -> EngineKey:
    """Return what decides the engine that a setup asks for; words are counted without one."""
    task = setup.job.task
    if isinstance(task, Count):
        return ()
    spec, cache_bytes = task.tokenizer, setup.resources.cache_bytes
    return (spec.sha256, spec.kind, spec.control_tokens, setup.engine, cache_bytes)


def preload(order: Preload) -> dict[EngineKey, tuple[Engine, float]]:
    """Load an engine while the main process still prepares the run; return it with the seconds.

    Nothing if that fails: loading it again for the setup raises the error.
    """
    started = time.perf_counter()
    # The first unit needs this module at its end. Engines release the GIL while they load.
    threading.Thread(target=importlib.import_module, args=("pyarrow.parquet",), daemon=True).start()
    with contextlib.suppress(Exception):
        file = TokenizerFile(order.kind, Path(order.path).read_bytes(), order.encoding)
        engine = load_engine(order.engine, file, order.control_tokens, order.cache_bytes)
        engine.encode(["a"])  # the first call of some engines is slow
        asked = (order.kind, order.control_tokens, order.engine, order.cache_bytes)
        return {(file.sha256, *asked): (engine, time.perf_counter() - started)}
    return {}


class GrownTooFar(Exception):
    """Ends a unit because the worker's memory has grown too much."""

    def __init__(self, grown_bytes: int, allowed_bytes: int) -> None:
        super().__init__(grown_bytes)
        self.grown_bytes, self.allowed_bytes = grown_bytes, allowed_bytes


class Growth:
    """Measures by how much the memory in use has grown since the worker was ready.

    Memory that the allocator keeps for later is released first.
    """

    def __init__(self, growth_bytes: int, batch_bytes: int) -> None:
        self._growth_bytes = growth_bytes
        self._batch_bytes = batch_bytes
        self._done_bytes = 0
        self._process = psutil.Process()
        self._ready_bytes = self._alive_bytes()

    def check(self, done_bytes: int) -> None:
        """Raise GrownTooFar after a batch if the unit cannot continue in this process.

        `done_bytes` counts the bytes of the unit so far.
        """
        long = done_bytes - self._done_bytes > LONG_BATCHES * self._batch_bytes
        self._done_bytes = done_bytes
        allowed = WITHIN_UNIT * self._growth_bytes
        if not long and (grown_bytes := self._beyond(allowed)):
            raise GrownTooFar(grown_bytes, allowed)

    def is_full(self) -> bool:
        """Return, after a unit, whether a fresh process should replace this one."""
        self._done_bytes = 0
        return self._beyond(self._growth_bytes) > 0

    def _beyond(self, limit_bytes: int) -> int:
        """Return the growth of this process in bytes if it is above the limit, else 0."""
        if self._resident_bytes() - self._ready_bytes <= limit_bytes:
            return 0
        grown = self._alive_bytes() - self._ready_bytes
        return grown if grown > limit_bytes else 0

    def _alive_bytes(self) -> int:
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)  # return free pages to the system; only glibc has a call for this
        return self._resident_bytes()

    def _resident_bytes(self) -> int:
        return int(self._process.memory_info().rss)


def main() -> None:
    """Run a worker, as a child process."""
    parent = Parent(Command)
    with lasting_streams():
        Worker(parent).run()


def load_task(setup: Setup, engine: Engine | None) -> TaskRunner:
    """Return the runner for the task of a setup. Pass `engine` if this process already has it."""
    match setup.job.task:
        case Encode():
            return EncodeRunner(setup, setup.job.task, engine)
        case Count():
            from tokenmill.run.units.count import CountRunner  # loads a compiler

            return CountRunner(setup, setup.job.task)
        case Measure():
            from tokenmill.run.units.measure import MeasureRunner  # loads a compiler

            return MeasureRunner(setup, setup.job.task, engine)


@dataclass(slots=True)
class FinishedUnit:
    """A unit with written files that do not have their final names yet."""

    outcome: Outcome
    _attempt: UnitAttempt
    _store: ObjectStore

    def commit(self) -> Outcome:
        """Store the files under their final names, so that the receipt can be written.

        Does nothing if another agent has already stored a receipt or published the dataset. The
        caller compares the two receipts.
        """
        started = time.perf_counter()
        receipt = self.outcome.receipt
        done = (receipt_name(receipt.key), MANIFEST_NAME)
        if all(self._store.size(name) is None for name in done):
            parts = [file.name for file in receipt.files]
            files = {part_name(receipt.key, part): self._attempt.path(part) for part in parts}
            self._store.add_files(files)
        self._attempt.remove_files()
        self.outcome.seconds["fsync"] = time.perf_counter() - started
        return self.outcome


class UnitRunner:
    """Runs units. Holds what the task loads once."""

    def __init__(self, setup: Setup, engine: Engine | None = None) -> None:
        """Load the task, with `engine` if given: a Python tokenizer of this process."""
        started = time.perf_counter()
        self.setup = setup
        self._store = open_store(setup.out)
        self._task = load_task(setup, engine)
        self._sources: dict[int, Source] = {}
        """The sources of the running unit, by index."""
        if setup.audits and setup.engine != REFERENCE:
            _ = self._task.reference  # now: later, it would count as growth
        self._load_steps = functools.cache(self._task.steps)
        self._reader = Reader(self._sources, setup.job.fields, setup.batch_bytes)
        self.current_source: int | None = None
        """The index of the source that is being read, to report if it is damaged."""
        self.startup_seconds = time.perf_counter() - started

    def calibrate(self, exam: Exam) -> None:
        """Raise an EngineError if this worker's engine differs from the reference."""
        check_engine(self._task.encoder, exam)

    def run(
        self,
        assignment: Assignment,
        report: Callable[[Tally], None],
        announce: Announce = lambda encoding: None,
    ) -> FinishedUnit:
        """Run a unit and write its files under temporary names; `FinishedUnit.commit` stores them.

        A careful assignment encodes each document alone, and announces each. Otherwise, only long
        batches are announced.
        """
        self._sources.clear()
        self._sources.update({source.index: source for source in assignment.sources})
        attempt = UnitAttempt(self.setup, assignment, self._load_steps, announce)
        self._reader.observe = attempt.digests.observe
        unit = self._task.begin(attempt)
        try:
            batches = attempt.timed("read", self._batches(assignment))
            # Read nothing after a limit: the digest of a source covers everything that was read.
            group_bytes = self.setup.batch_bytes if assignment.limit == NO_LIMIT else 0
            for group in grouped(batches, group_bytes):
                for batch in group:
                    attempt.digests.add_rows(batch)
                unit.add(group)
                report(attempt.tally)
                if attempt.limited:
                    break
            with attempt.timing("write"):
                files = unit.close()
            outcome = attempt.outcome(files)
            if self.setup.audits:
                with attempt.timing("audit"):
                    outcome = self._audited(outcome, lambda: report(attempt.tally))
            return FinishedUnit(outcome, attempt, self._store)
        except MemoryError as error:
            unit.discard()
            raise self._out_of_memory() from error
        except BaseException:
            unit.discard()
            raise

    def _audited(self, outcome: Outcome, report: Callable[[], None]) -> Outcome:
        """Audit a unit; `report` tells regularly that this worker does not hang."""
        difference = None
        try:
            texts, ids = outcome.audit_texts, outcome.audit_ids
            audit(self._task.encoder.name, texts, ids, self._task.reference, report)
        except EngineError as error:
            difference = ErrorRecord.of(error)
        return msgspec.structs.replace(outcome, audit_texts=[], audit_ids=[], difference=difference)

    def _out_of_memory(self) -> EngineError:
        # None before the first extent: then no source is to blame.
        source = None if self.current_source is None else self._sources.get(self.current_source)
        return EngineError(
            "not enough memory to encode a document",
            where=f"{source.where if source else ''}, at or after position {self._reader.position}",
            why="documents are encoded whole",
            hint="give the process more memory, lower --workers, or split the document",
        )

    def _batches(self, assignment: Assignment) -> Iterator[DocumentBatch]:
        for extent in assignment.unit.extents:
            if extent.source not in assignment.excluded:
                self.current_source = extent.source
                yield from self._reader.read(extent, assignment.spool)
