"""Where units run on one machine: in worker processes, or in this one."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.encode.calibration import Exam
from tokenmill.errors import EngineError, TokenmillError
from tokenmill.run import messages
from tokenmill.run.messages import (
    Calibrate,
    Calibrated,
    Done,
    Encoded,
    Failed,
    Progress,
    RunUnit,
    Started,
)
from tokenmill.run.resources import Resources
from tokenmill.run.session import CalibrationVetoError, Session
from tokenmill.run.tasks import Task, TaskQueue
from tokenmill.run.unit import FinishedUnit, UnitRunner
from tokenmill.run.worker import WORKER_ENVIRONMENT

MAX_CRASHES = 1
POLL_SECONDS = 0.1


def run_tasks(session: Session, tasks: TaskQueue, fleet: Fleet) -> None:
    """Run everything that `tasks` hands out; one worker runs in the calling process.

    Raises:
        TokenmillError: a unit failed in a way that the others cannot outlive.
    """
    try:
        if fleet.resources.num_workers == 1:
            _run_here(session, tasks)
        else:
            _Crew(session, tasks, fleet).run()
        session.collect_feed_failures(tasks)
    finally:
        tasks.close()


def _run_here(session: Session, tasks: TaskQueue) -> None:
    try:
        runner = UnitRunner(session.setup)
        session.board.start_worker(os.getpid(), runner.startup_seconds)
        runner.calibrate(session.exam.result())
    except EngineError as error:
        raise _veto(error) from error
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


def _veto(error: TokenmillError) -> CalibrationVetoError:
    return CalibrationVetoError(error.what, where=error.where, why=error.why, hint=error.hint)


@dataclass(slots=True)
class _Process:
    """A worker process, as the main process sees it."""

    popen: subprocess.Popen[bytes]
    running: Task | None = None
    committing: dict[str, Task] = field(default_factory=dict)
    examined: bool = False
    calibrated: bool = False
    held: list[Done] = field(default_factory=list)
    """Finished before the engine was calibrated."""

    @property
    def busy(self) -> bool:
        return self.running is not None or bool(self.committing) or bool(self.held)

    def send(self, command: object) -> None:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(messages.encode(command))
            self.popen.stdin.flush()
        except BrokenPipeError:
            pass  # its end arrives as an event


class Fleet:
    """Worker processes: some wait, imports done, before there is anything to tell them."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self._processes: list[_Process] = []
        self._waiting: list[_Process] = []

    def __enter__(self) -> Fleet:
        if self.resources.num_workers > 1:
            self._waiting = [self._spawn() for _ in range(self.resources.num_workers)]
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers at once: what they have not committed is run again by a resume."""
        for process in self._processes:
            self.dismiss(process)

    def enlist(self) -> _Process:
        """A worker that has not been told anything yet."""
        return self._waiting.pop() if self._waiting else self._spawn()

    def dismiss(self, process: _Process) -> None:
        """End a worker."""
        process.popen.kill()
        process.popen.wait()
        for stream in (process.popen.stdin, process.popen.stdout):
            with contextlib.suppress(BrokenPipeError):
                if stream:
                    stream.close()

    def _spawn(self) -> _Process:
        popen = subprocess.Popen(
            [sys.executable, "-m", "tokenmill.run.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **WORKER_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C is for the main process
        )
        process = _Process(popen)
        self._processes.append(process)
        return process


Event = tuple[_Process, messages.Message | None] | None
"""A message of a process, None for its end; or None alone: there may be new tasks."""


class _Crew:
    """Worker processes and the loop that serves them."""

    def __init__(self, session: Session, tasks: TaskQueue, fleet: Fleet) -> None:
        self._session = session
        self._tasks = tasks
        self._fleet = fleet
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._processes: list[_Process] = []
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
                self._session.board.refresh()
            if self._idle_since:
                self._session.board.spend("flush_wait", time.monotonic() - self._idle_since)
        finally:
            self._stop()

    def _finished(self) -> bool:
        if not self._idle_since and self._tasks.exhausted:
            idle = not any(process.running for process in self._processes)
            self._idle_since = time.monotonic() if idle else 0.0
        return self._tasks.exhausted and not any(process.busy for process in self._processes)

    def _start(self) -> None:
        process = self._fleet.enlist()
        self._processes.append(process)
        process.send(self._session.setup)
        self._session.board.start_worker(process.popen.pid, None)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def _listen(self, process: _Process) -> None:
        decode = messages.decoder(messages.Message).decode
        assert process.popen.stdout is not None
        try:
            for line in process.popen.stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a message
                self._events.put((process, decode(line)))
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
        process, message = event
        if message is None:
            self._ended(process)
        else:
            self._heard(process, message)

    def _heard(self, process: _Process, message: messages.Message) -> None:
        match message:
            case Progress(tally=tally):
                self._session.board.advance(process.popen.pid, tally)
            case Started(seconds=seconds):
                self._session.board.start_worker(process.popen.pid, seconds)
            case Encoded():
                process.running = None
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

    def _finish(self, process: _Process, done: Done) -> None:
        task = process.committing.pop(done.receipt.key)
        self._session.finish(done, task, self._tasks)

    def _failed(self, process: _Process, message: Failed) -> None:
        error = message.rebuild()
        if not message.key:
            veto = isinstance(error, EngineError) and not process.calibrated
            raise _veto(error) if veto else error
        task = process.committing.pop(message.key)
        self._session.fail(error, task, message.source, self._tasks)

    def _assign(self) -> None:
        for process in self._processes:
            if process.running is None and (task := self._tasks.take()) is not None:
                process.running = task
                process.committing[task.unit.key] = task
                self._session.board.start(task.unit, process.popen.pid)
                process.send(
                    RunUnit(
                        unit=task.unit,
                        spool=task.spool,
                        excluded=self._session.excluded,
                        limit=self._session.limit,
                    )
                )
                self._read_ahead()

    def _read_ahead(self) -> None:
        """Ask the kernel for the next units' bytes, so that a slow disk does not stop a worker."""
        sources = self._session.setup.sources
        for unit in self._tasks.upcoming(self._fleet.resources.prefetch):
            for extent in unit.extents:
                _advise(sources[extent.source].path, extent.start, extent.stop)

    def _send_exam(self) -> None:
        """Send the exam to every worker that reads its commands now: a busy one would block us."""
        if not self._session.exam.done():
            return
        for process in self._processes:
            if not process.examined and process.running is None:
                process.examined = True
                self._calibrate(process)

    def _calibrate(self, process: _Process) -> None:
        exam: Exam = self._session.exam.result()
        process.send(
            Calibrate(
                texts=exam.texts,
                ids=exam.expected.ids.tolist(),
                offsets=exam.expected.offsets.tolist(),
            )
        )

    def _ended(self, process: _Process) -> None:
        """A worker has died: its units run again elsewhere, once."""
        code = process.popen.wait()
        self._processes.remove(process)
        self._fleet.dismiss(process)
        tally = self._session.board.forget_worker(process.popen.pid)
        for task in process.committing.values():
            task.crashes += 1
            if task.crashes > MAX_CRASHES:
                source = self._session.setup.sources[tally.source].name if tally else "its start"
                raise EngineError(
                    f"a worker died twice on unit {task.unit.key}",
                    where=f"{source}, after position {tally.position if tally else 0}",
                    why=f"exit code {code} (negative: the signal; -9 is usually memory)",
                    hint="lower --workers or raise --memory; else try --engine reference and "
                    "report the documents at that place",
                )
            self._tasks.put_back(task)
        self._start()

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
