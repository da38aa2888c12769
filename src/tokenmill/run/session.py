"""Decide which units an executor runs, in what order, and which results count.

With every executor, a result counts only if its engine has passed the exam, its audit succeeds, and
it is within the limits. A damaged file ends only its own unit. A crashed unit runs once more.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue

from tokenmill.core.errors import DamagedInputError, EngineError, InternalError, TokenmillError
from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import REFERENCE
from tokenmill.encode.exactness import CalibrationVetoError, audit
from tokenmill.run.executor import (
    Advanced,
    Assignment,
    Calibrated,
    Crashed,
    Encoded,
    Event,
    Executor,
    Failed,
    Gone,
    Loaded,
    Outcome,
    Phase,
    Receipt,
    Workers,
)
from tokenmill.run.job import NO_LIMIT, Limit
from tokenmill.run.journal.ledger import LIMITED, Ledger, write_receipt
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.work import Work, WorkQueue
from tokenmill.store.cloud.loop import check_waits
from tokenmill.store.objects.object_store import ObjectStore

MAX_CRASHES = 1
POLL_SECONDS = 0.1
NUM_THREADS = 8
"""Receipts stored at the same time. A disk combines flushes that arrive together."""
MOST_WAITING = 64
"""Most results that may wait for their receipts before the session stops starting units."""
END_SECONDS = 1.0
"""How long the end of a build waits for requests that store receipts."""


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
            self._note_idleness()
            self.board.refresh()
        self._collect_feed_failures()

    def _start_units(self) -> None:
        while self._workers.room() and self._committer.has_room and (work := self.queue.take()):
            if self.limit != NO_LIMIT and not work.crashes:
                work.unit = replace(work.unit, key=work.unit.key + LIMITED)
            self._started[work.unit.key], work.is_written = work, False
            self._note_idleness()
            self.board.start(work.unit)
            assignment = Assignment(
                unit=work.unit,
                sources=[self.phase.sources[extent.source] for extent in work.unit.extents],
                spool=work.spool,
                excluded=sorted(self.ledger.quarantined),
                limit=self.limit,
                careful=work.crashes > 0,
            )
            self._workers.start(assignment)

    def _hear(self, worker: int, event: Event) -> None:
        match event:
            case Calibrated():
                self._calibrated.add(worker)
                for outcome in self._held.pop(worker, []):
                    self._commit(outcome)
            case Outcome():
                self._commit_or_hold(worker, event)
            case Failed():
                self._failed(worker, event)
            case Crashed():
                self._crashed(event)
            case Gone():
                self._gone(worker, event)
            case Loaded(seconds):
                self.board.engine_loaded(seconds)
            case Advanced(key, tally):
                self.board.advance(key, tally)
            case Encoded(key) if key in self._started:
                self._started[key].is_written = True
                self._note_idleness()

    def _commit_or_hold(self, worker: int, outcome: Outcome) -> None:
        if worker in self._calibrated:
            self._commit(outcome)
        else:
            self._held.setdefault(worker, []).append(outcome)

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
            if self.queue.claims is not None:
                self.queue.claims.stop(error)
            raise

    def _count(self, committed: Committed) -> None:
        """Record a unit with a receipt, and stop the queue if a limit is reached."""
        receipt = committed.receipt
        self.ledger.count(receipt)
        work = self._started.pop(receipt.key)
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
            self.queue.release(self._started.pop(event.key))

    def _crashed(self, event: Crashed) -> None:
        """Run a crashed unit once more, on a fresh worker, document by document."""
        work = self._started.pop(event.key)
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
        work = self._started.pop(key)
        if not self.queue.give_up(work.unit, error):
            raise error
        self.queue.release(work)

    def _gone(self, worker: int, event: Gone) -> None:
        """Hand out the units of an ended worker again. Two deaths on the exam reject the engine."""
        self.board.num_recycled += event.was_full
        self._exam_deaths += bool(event.exam)
        if self._exam_deaths > MAX_CRASHES:
            engine = self.phase.setup.engine
            kind = EngineError if self._calibrated else CalibrationVetoError
            raise kind(f"{engine} failed twice on the calibration texts", why=event.exam)
        self._calibrated.discard(worker)
        held = [outcome.receipt.key for outcome in self._held.pop(worker, [])]
        for key in (*event.keys, *held):
            self.board.drop(key)
            self.queue.put_back(self._started.pop(key))

    def _note_idleness(self) -> None:
        now = time.monotonic()
        if self._idle_since:
            self.board.spend("flush_wait", now - self._idle_since)
        works = self._started.values()
        self._idle_since = now if works and all(work.is_written for work in works) else 0.0

    def _collect_feed_failures(self) -> None:
        """Treat failures of streams like failures of units."""
        while self.queue.failures:
            source, error = self.queue.failures.pop()
            if not isinstance(error, DamagedInputError):
                raise error
            self.damaged[source] = error


@dataclass(frozen=True, slots=True)
class Committed:
    """A result with a stored receipt."""

    outcome: Outcome
    receipt: Receipt
    """The stored receipt. If several agents ran the unit, the first one's."""
    audit_seconds: float


class Committer:
    """Audits results and stores their receipts, in this thread or in threads of its own.

    The reference tokenizer, disks and buckets are slow, and the main thread must keep the workers
    busy. A result counts once its receipt is stored, so the order of commits does not matter.
    """

    def __init__(self, store: ObjectStore, reference: Engine, name: str) -> None:
        self._store, self._reference, self._name = store, reference, name
        self._audits = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._wake: Callable[[], None] = lambda: None
        self._closed_at: float | None = None
        self._done: SimpleQueue[Future[Committed]] = SimpleQueue()
        self._num_waiting = 0

    def start_threads(self, wake: Callable[[], None]) -> None:
        """Commit further results in threads, which call `wake` after each."""
        self._wake = wake
        self._threads = ThreadPoolExecutor(
            NUM_THREADS, "commit", initializer=check_waits, initargs=(self._check_request,)
        )

    @property
    def has_room(self) -> bool:
        """Whether another result can be committed without overloading the threads."""
        return self._num_waiting < MOST_WAITING

    def commit(self, outcome: Outcome) -> None:
        """Audit a result and store its receipt; `done` then yields it."""
        self._num_waiting += 1
        if self._threads is not None:
            self._threads.submit(self._commit, outcome).add_done_callback(self._tell)
            return
        future: Future[Committed] = Future()
        future.set_result(self._commit(outcome))
        self._done.put(future)

    def done(self) -> Iterator[Committed]:
        """Yield results committed since the last call.

        Raises:
            EngineError: the reference disagrees on a document.
            InternalError: another agent ran the same unit with a different result.
        """
        while True:
            try:
                found = self._done.get_nowait()
            except Empty:
                return
            self._num_waiting -= 1
            yield found.result()

    def close(self) -> None:
        """Wait briefly for running commits. A resumed build repeats the rest.

        A signal must end the build soon, so audits end at once, and so do requests that the
        store does not answer within `END_SECONDS`.
        """
        self._closed_at = time.monotonic()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _commit(self, outcome: Outcome) -> Committed:
        seconds = 0.0
        if outcome.difference:
            raise outcome.difference.rebuild()
        if outcome.audit_texts:
            with self._audits:  # references are not thread-safe
                begun = time.perf_counter()
                texts, ids = outcome.audit_texts, outcome.audit_ids
                audit(self._name, texts, ids, self._reference, self._check)
                seconds = time.perf_counter() - begun
        return Committed(outcome, write_receipt(self._store, outcome.receipt), seconds)

    def _check(self) -> None:
        if self._closed_at is not None:
            raise CancelledError("the build is ending")

    def _check_request(self) -> None:
        if self._closed_at is not None and time.monotonic() > self._closed_at + END_SECONDS:
            self._check()

    def _tell(self, future: Future[Committed]) -> None:
        self._done.put(future)
        self._wake()
