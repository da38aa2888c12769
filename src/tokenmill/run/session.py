"""Decide which units an executor runs, in what order, and which results count.

With every executor, a result counts only if its engine has passed the exam, its audit succeeds, and
it is within the limits. A damaged file ends only its own unit. A crashed unit runs once more.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tokenmill.core.errors import DamagedInputError, EngineError, InternalError, TokenmillError
from tokenmill.encode.engine_ranking import REFERENCE
from tokenmill.encode.exactness import CalibrationVetoError
from tokenmill.run.committing import Committed, Committer
from tokenmill.run.executor import Executor, Phase, Workers
from tokenmill.run.job import NO_LIMIT, Limit
from tokenmill.run.journal.ledger import LIMITED, Ledger
from tokenmill.run.messages import (
    Advanced,
    Assignment,
    Calibrated,
    Crashed,
    Encoded,
    Event,
    Failed,
    Gone,
    Loaded,
    Outcome,
    Replaced,
)
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.work import Work, WorkQueue

MAX_CRASHES = 1
POLL_SECONDS = 0.1


@dataclass(slots=True)
class Session:
    """One phase of a run: the units of a queue, run with one engine."""

    executor: Executor
    phase: Phase
    queue: WorkQueue
    ledger: Ledger
    board: ProgressBoard
    limit: Limit = NO_LIMIT
    """The limit of each unit."""
    in_threads: bool = False
    """Whether threads commit results. Not if units run in this process: threads would slow them
    down, and the tokenizer may be the reference object itself.
    """
    damaged: dict[int, TokenmillError] = field(default_factory=dict)
    """The errors of damaged sources, by index. For each source, the error of its first unit."""
    _started: dict[str, Work] = field(default_factory=dict)
    _encoding: set[str] = field(default_factory=set)
    _damaged_keys: dict[int, str] = field(default_factory=dict)
    """The keys of the units with these errors, by source."""
    _calibrated: set[int] = field(default_factory=set)
    _held: dict[int, list[Outcome]] = field(default_factory=dict)
    """Results that a worker finished before its engine was calibrated, by worker."""
    _workers: Workers = field(init=False)
    _committer: Committer = field(init=False)
    _exam_deaths: int = 0
    _idle_since: float = 0.0
    """Since when there is nothing to do but wait for the disk."""

    def run(self) -> None:
        """Run all units that the queue hands out.

        Raises:
            CalibrationVetoError: the engine differs from the reference. Nothing was committed.
            TokenmillError: a unit failed in a way that ends the run.
        """
        setup, reference = self.phase.setup, self.phase.reference
        name = reference.name if setup.engine == REFERENCE else setup.engine
        self._committer = Committer(self.ledger.store, reference, name)
        try:
            self._workers = self.executor.begin(self.phase, self._hear)
            try:
                self._serve(self._workers)
            finally:
                self._committer.close()
                self._workers.end()
        finally:
            self.queue.close()

    def _serve(self, workers: Workers) -> None:
        self.board.pids, self.queue.notify = workers.pids, workers.wake
        if self.in_threads:
            self._committer.start_threads(workers.wake)
        # An agent that found damage must not wait: other agents may wait for its verdict.
        while self._started or not self.queue.is_exhausted(waiting=not self.damaged):
            self._start_units()
            self.board.num_awaited = 0 if self._started else self.queue.num_awaited
            workers.wait(POLL_SECONDS)
            self._count_committed()
            self.board.refresh()
        self._collect_feed_failures()

    def _start_units(self) -> None:
        while self._has_room() and (work := self.queue.take()):
            if self.limit != NO_LIMIT and not work.crashes:
                work.unit = replace(work.unit, key=work.unit.key + LIMITED)
            key = work.unit.key
            self._started[key] = work
            self._encoding.add(key)
            self._end_idleness()
            self.board.start(work.unit)
            assignment = Assignment(
                unit=work.unit,
                sources=[self.phase.sources[extent.source] for extent in work.unit.extents],
                spool=work.spool,
                excluded=sorted(self.ledger.quarantined),
                limit=self.limit,
                careful=work.crashes > 0,
            )
            self._workers.start(assignment, self.queue.upcoming())

    def _has_room(self) -> bool:
        return self._workers.room() > 0 and self._committer.has_room

    def _hear(self, worker: int, event: Event) -> None:
        match event:
            case Calibrated():
                self._calibrated.add(worker)
                for outcome in self._held.pop(worker, []):
                    self._commit(outcome)
            case Outcome():
                self._encoded(event.receipt.key)
                if worker in self._calibrated:
                    self._commit(event)
                else:
                    self._held.setdefault(worker, []).append(event)
            case Failed():
                self._failed(worker, event)
            case Crashed():
                self._crashed(event)
            case Gone():
                self._gone(worker, event)
            case _:
                self._book(event)

    def _book(self, event: Loaded | Advanced | Encoded | Replaced) -> None:
        match event:
            case Loaded(seconds):
                self.board.engine_loaded(seconds)
            case Advanced(key, tally):
                self.board.advance(key, tally)
            case Encoded(key):
                self._encoded(key)
            case Replaced():
                self.board.num_recycled += 1

    def _commit(self, outcome: Outcome) -> None:
        """Audit a finished unit and write its receipt, here or in a thread.

        Raises:
            EngineError: the reference disagrees on a document.
        """
        self.ledger.agree_on_engine(self.phase.setup.engine)
        with self._distrusting():
            self._committer.commit(outcome)
        self._count_committed()

    def _count_committed(self) -> None:
        """Count the results that have been committed."""
        with self._distrusting():
            found = list(self._committer.done())
        for committed in found:
            self._count(committed)

    @contextlib.contextmanager
    def _distrusting(self) -> Iterator[None]:
        """Stop all agents of the build if a result is wrong."""
        try:
            yield
        except (EngineError, InternalError) as error:
            self.queue.distrust(error)
            raise

    def _count(self, committed: Committed) -> None:
        """Record a unit with a receipt, and stop the queue if a limit is reached."""
        receipt = committed.receipt
        self.ledger.count(receipt)
        work = self._take_back(receipt.key)
        if committed.audit_seconds:
            self.board.spend("audit", committed.audit_seconds)
        self.board.finish(work.unit, receipt, committed.outcome.seconds)
        self.queue.finish(work)
        if self.ledger.crossing is not None:
            self.queue.stop()

    def _failed(self, worker: int, event: Failed) -> None:
        """End the unit if its file is damaged. Any other error ends the phase."""
        error = event.error.rebuild()
        if not event.key and isinstance(error, EngineError):
            raise error if worker in self._calibrated else CalibrationVetoError.of(error)
        if not isinstance(error, DamagedInputError) or event.source is None:
            if not isinstance(error, EngineError):
                raise error
            self._give_up(event.key, error)
            return
        if event.key <= self._damaged_keys.setdefault(event.source, event.key):
            self._damaged_keys[event.source] = event.key
            self.damaged[event.source] = error
        self.board.drop(event.key)
        with contextlib.suppress(FileNotFoundError):
            self.queue.release(self._take_back(event.key))

    def _crashed(self, event: Crashed) -> None:
        """Run a crashed unit once more, on a fresh worker, document by document."""
        work = self._take_back(event.key)
        work.crashes += 1
        tally = self.board.drop(event.key)
        if work.crashes > MAX_CRASHES:
            name = self.phase.sources[tally.source].name
            error = EngineError(
                f"{event.what} twice on unit {event.key}",
                where=event.where or f"{name}, after position {tally.position}",
                why=f"the last one {event.why}",
                hint=event.hint,
            )
            if not self.queue.give_up(work.unit, error):
                raise error
            return
        self.queue.put_back(work)

    def _give_up(self, key: str, error: TokenmillError) -> None:
        """Leave a failed unit to another agent. Without other agents, the phase ends."""
        self.board.drop(key)
        work = self._take_back(key)
        if not self.queue.give_up(work.unit, error):
            raise error
        self.queue.release(work)

    def _gone(self, worker: int, event: Gone) -> None:
        """Hand out the units of an ended worker again. Two deaths on the exam reject the engine."""
        if event.exam:
            self._exam_deaths += 1
        if self._exam_deaths > MAX_CRASHES:
            engine = self.phase.setup.engine
            kind = EngineError if self._calibrated else CalibrationVetoError
            raise kind(f"{engine} failed twice on the calibration texts", why=event.exam)
        self._calibrated.discard(worker)
        held = [outcome.receipt.key for outcome in self._held.pop(worker, [])]
        for key in (*event.keys, *held):
            self.board.drop(key)
            self.queue.put_back(self._take_back(key))

    def _take_back(self, key: str) -> Work:
        self._encoded(key)
        work = self._started.pop(key)
        if not self._started:
            self._end_idleness()
        return work

    def _encoded(self, key: str) -> None:
        self._encoding.discard(key)
        if not self._encoding and not self._idle_since:
            self._idle_since = time.monotonic()

    def _end_idleness(self) -> None:
        if self._idle_since:
            self.board.spend("flush_wait", time.monotonic() - self._idle_since)
            self._idle_since = 0.0

    def _collect_feed_failures(self) -> None:
        """Treat failures of streams like failures of units."""
        while self.queue.failures:
            source, error = self.queue.failures.pop()
            if not isinstance(error, DamagedInputError):
                raise error
            self.damaged[source] = error
