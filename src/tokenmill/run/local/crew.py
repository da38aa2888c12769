"""Where units run on one machine: in worker processes, or in this one."""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path

from tokenmill.encode.exactness import CalibrationVetoError, Exam
from tokenmill.encode.kinds import KINDS
from tokenmill.errors import EngineError, TokenmillError
from tokenmill.run.local import messages
from tokenmill.run.local.fleet import Fleet, Process
from tokenmill.run.local.messages import (
    Calibrate,
    Calibrated,
    Done,
    Encoded,
    Exceeded,
    Failed,
    Progress,
    RunUnit,
    Started,
)
from tokenmill.run.local.watchdog import Watchdog, resident_bytes
from tokenmill.run.session import Session
from tokenmill.run.units.assignment import Tally
from tokenmill.run.units.careful import Encoding
from tokenmill.run.units.growth import WITHIN_UNIT
from tokenmill.run.units.unit import FinishedUnit, UnitRunner
from tokenmill.run.work import Work, WorkQueue

MAX_CRASHES = 1
POLL_SECONDS = 0.1


def run_all(session: Session, tasks: WorkQueue, fleet: Fleet) -> None:
    """Run everything that `tasks` hands out.

    One worker runs in the calling process, unless it is to be watched.

    Raises:
        TokenmillError: a unit failed in a way that the others cannot outlive.
    """
    try:
        if fleet.resources.num_workers == 1 and not session.watched:
            _run_here(session, tasks)
        else:
            _Crew(session, tasks, fleet).run()
        session.collect_feed_failures(tasks)
    finally:
        tasks.close()


def _run_here(session: Session, tasks: WorkQueue) -> None:
    try:
        engine = None
        if KINDS[session.setup.tokenizer_kind].is_described:
            session.exam.result()  # until then another thread asks the object
            engine = session.reference.twin()
        runner = UnitRunner(session.setup, engine)
        session.board.start_worker(os.getpid(), runner.startup_seconds)
        runner.calibrate(session.exam.result())
    except EngineError as error:
        raise CalibrationVetoError.of(error) from error
    arrived = threading.Event()
    tasks.notify = arrived.set
    while not tasks.exhausted:
        if (task := tasks.take()) is None:
            arrived.wait(POLL_SECONDS)
            arrived.clear()
            continue
        session.board.start(task.unit, os.getpid())
        report = lambda tally: session.board.advance(os.getpid(), tally)  # noqa: E731
        try:
            finished = runner.run(task.unit, task.spool, session.excluded, session.limit, report)
            finished.commit()
            session.board.spend("flush_wait", finished.seconds["fsync"])
        except TokenmillError as error:
            session.fail(error, task, runner.current_source, tasks)
        else:
            session.finish(_done(finished), task, tasks)


def _done(finished: FinishedUnit) -> Done:
    return Done(
        receipt=finished.receipt,
        audit_texts=finished.audit_texts,
        audit_ids=finished.audit_ids,
        seconds=finished.seconds,
    )


Event = tuple[Process, bytes | None] | None
"""A message of a process as a line, or None for its end; None alone: new tasks."""


class _Crew:
    """Worker processes and the loop that serves them."""

    def __init__(self, session: Session, tasks: WorkQueue, fleet: Fleet) -> None:
        self._session = session
        self._tasks = tasks
        self._fleet = fleet
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._watchdog = Watchdog(session.setup)
        self._exam_deaths = 0
        self._idle_since = 0.0
        """When the last worker had nothing left to do but to wait for the disk."""

    def run(self) -> None:
        """Serve events until every task has its receipt."""
        self._tasks.notify = lambda: self._events.put(None)
        try:
            for _ in range(self._fleet.resources.num_workers):
                self._start()
            self._assign()
            while not self._finished():
                self._serve()
                self._send_exam()
                self._assign()
                self._end_overdue()
                self._session.board.refresh()
            if self._idle_since:
                self._session.board.spend("flush_wait", time.monotonic() - self._idle_since)
        finally:
            self._stop()

    def _finished(self) -> bool:
        if not self._idle_since and self._tasks.exhausted:
            idle = not any(process.running for process in self._processes)
            self._idle_since = time.monotonic() if idle else 0.0
        waiting = any(process.busy or process.rerun for process in self._processes)
        return self._tasks.exhausted and not waiting

    def _start(self) -> Process:
        process = self._fleet.enlist()
        self._processes.append(process)
        process.send(self._session.setup)
        self._session.board.start_worker(process.popen.pid, None)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: Process) -> None:
        assert process.popen.stdout is not None
        try:
            for line in process.popen.stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a message
                self._events.put((process, line))
        except ValueError:
            pass  # closed because the worker was dismissed
        finally:
            self._events.put((process, None))

    def _serve(self) -> None:
        try:
            event = self._events.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        if event is None:
            return
        process, line = event
        if line is None:
            self._ended(process)
        else:
            self._heard(process, messages.decode(line))

    def _heard(self, process: Process, message: messages.Message) -> None:
        process.heard = time.monotonic()
        process.encoding = message if isinstance(message, Encoding) else None
        match message:
            case Progress(tally=tally):
                self._session.board.advance(process.popen.pid, tally)
            case Started(seconds=seconds):
                process.ready_bytes = resident_bytes(process)
                self._session.board.start_worker(process.popen.pid, seconds)
            case Encoded(full=full):
                process.running = None
                process.full = full
            case Exceeded():
                self._exceeded(process, message)
            case Calibrated():
                process.calibrated = True
                held, process.held = process.held, []
                for done in held:
                    self._finish(process, done)
            case Done() if not process.calibrated:
                process.held.append(message)
            case Done():
                self._finish(process, message)
            case Failed():
                self._failed(process, message)

    def _finish(self, process: Process, done: Done) -> None:
        task = process.committing.pop(done.receipt.key)
        self._session.finish(done, task, self._tasks)

    def _failed(self, process: Process, message: Failed) -> None:
        error = message.rebuild()
        if not message.key:
            if isinstance(error, EngineError) and not process.calibrated:
                raise CalibrationVetoError.of(error)
            raise error
        task = process.committing.pop(message.key)
        self._session.fail(error, task, message.source, self._tasks)

    def _exceeded(self, process: Process, message: Exceeded) -> None:
        """A worker has stopped a unit for its memory: it runs again in a fresh one, once."""
        task = process.committing.pop(message.key)
        process.running, process.full, process.rerun = None, True, task
        task.crashes += 1
        if task.crashes > MAX_CRASHES:
            allowed = WITHIN_UNIT * self._session.setup.growth_bytes
            raise EngineError(
                f"unit {task.unit.key} needs more memory than a worker is allowed",
                where=f"{self._session.setup.sources[message.source].name}, "
                f"after position {message.position}",
                why=f"a fresh worker grew by {message.grown_bytes:,} bytes as well; "
                f"its share allows {allowed:,} within a unit",
                hint="raise --memory or lower --workers; a Python tokenizer may keep too much",
            )

    def _recycle(self) -> None:
        """Put a fresh process in the place of each that is full and has nothing left to commit."""
        for process in [process for process in self._processes if process.full]:
            if process.busy or (self._tasks.exhausted and not process.rerun):
                continue
            self._processes.remove(process)
            self._fleet.dismiss(process)
            self._session.board.forget_worker(process.popen.pid)
            self._session.recycled_workers += 1
            fresh = self._start()
            if process.rerun:
                self._run_unit(fresh, process.rerun)

    def _assign(self) -> None:
        self._recycle()
        for process in self._processes:
            if process.full or process.blame or process.running is not None:
                continue
            if (task := self._tasks.take()) is not None:
                self._run_unit(process, task)

    def _run_unit(self, process: Process, task: Work) -> None:
        process.running = task
        process.committing[task.unit.key] = task
        self._session.board.start(task.unit, process.popen.pid)
        process.send(
            RunUnit(
                unit=task.unit,
                spool=task.spool,
                excluded=self._session.excluded,
                limit=self._session.limit,
                careful=task.crashes > 0,
            )
        )
        self._read_ahead()

    def _read_ahead(self) -> None:
        """Ask the kernel for the next units' bytes, so that a slow disk does not stop a worker."""
        sources = self._session.setup.sources
        for unit in self._tasks.upcoming(self._fleet.resources.prefetch):
            for extent in unit.extents:
                if path := sources[extent.source].path:
                    _advise(path, extent.start, extent.stop)

    def _send_exam(self) -> None:
        """Send the exam to workers that read commands; one that loads or encodes would block."""
        if not self._session.exam.done():
            return
        for process in self._processes:
            if process.ready_bytes and not process.examined and process.running is None:
                process.examined = True
                self._calibrate(process)

    def _calibrate(self, process: Process) -> None:
        exam: Exam = self._session.exam.result()
        process.send(
            Calibrate(
                texts=exam.texts,
                ids=exam.expected.ids.tolist(),
                offsets=exam.expected.offsets.tolist(),
            )
        )

    def _end_overdue(self) -> None:
        """End workers that hang or take too much memory; each arrives as one that has died."""
        for process, why in self._watchdog.overdue(self._processes):
            process.blame = process.blame or why
            self._fleet.kill(process)

    def _ended(self, process: Process) -> None:
        """A worker has died: its units run again elsewhere, once, document by document."""
        if process not in self._processes:
            return  # dismissed, because its memory had grown
        self._processes.remove(process)
        code = self._fleet.dismiss(process)
        signals = "(negative: the signal; -9 is usually memory)"
        why = process.blame or f"ended with exit code {code} {signals}"
        tally = self._session.board.forget_worker(process.popen.pid) or Tally()
        if process.examining:
            self._exam_ended(why)
        for task in process.committing.values():
            if not process.examining and (process.running is None or task is process.running):
                task.crashes += 1
            if task.crashes > MAX_CRASHES:
                raise self._failed_twice(task, process, tally, why)
            self._tasks.put_back(task)
        if process.rerun:
            self._tasks.put_back(process.rerun)
        self._start()

    def _exam_ended(self, why: str) -> None:
        """A worker has died over the calibration texts: the engine is vetoed the second time."""
        self._exam_deaths += 1
        if self._exam_deaths > MAX_CRASHES:
            passed = any(process.calibrated for process in self._processes)
            kind = EngineError if passed else CalibrationVetoError
            engine = self._session.setup.engine
            raise kind(f"{engine} failed twice on the calibration texts", why=f"a worker {why}")

    def _failed_twice(self, task: Work, process: Process, tally: Tally, why: str) -> TokenmillError:
        """What ends the build after a unit's second failure."""
        sources, found = self._session.setup.sources, process.encoding
        if found and found.step:
            where = f"{sources[found.source].name}, position {found.position}"
            why += f", in the {found.step}, over a document of {found.num_bytes:,} bytes"
        else:
            where = f"{sources[tally.source].name}, after position {tally.position}"
        return EngineError(
            f"a worker {'was ended' if process.blame else 'died'} twice on unit {task.unit.key}",
            where=where,
            why=f"the last one {why}",
            hint="remove the document at that place or take another tokenizer; if memory is "
            "short, lower --workers or raise --memory",
        )

    def _stop(self) -> None:
        for process in self._processes:
            self._fleet.dismiss(process)
            self._session.board.forget_worker(process.popen.pid)


def _advise(path: Path, start: int, stop: int | None) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        with open(path, "rb") as file:
            length = (stop - start) if stop is not None else 0
            os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass  # advice only: the reader reports what is wrong with the file
