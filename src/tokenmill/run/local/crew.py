"""Worker processes on this machine, and the loop that serves them."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tokenmill.read.units import Unit
from tokenmill.run import executor
from tokenmill.run.executor import Advanced, Crashed, Finished, Gone, Loaded, Phase, Replaced, Tell
from tokenmill.run.local import messages
from tokenmill.run.local.fleet import Fleet, Process
from tokenmill.run.local.messages import (
    Calibrate,
    Calibrated,
    Encoded,
    Exceeded,
    Failed,
    Progress,
    Started,
)
from tokenmill.run.local.watchdog import Watchdog, resident_bytes
from tokenmill.run.units.assignment import Assignment, Outcome
from tokenmill.run.units.careful import Encoding
from tokenmill.run.units.growth import WITHIN_UNIT

MOST_REPORTS = 200
"""Reports of progress a second, of all workers together."""
MOST_LINES = 1_000
"""Messages that are served before there is a look at anything else."""
Line = tuple[Process, bytes | None] | None
"""A message of a process as a line, or None for its end; None alone wakes."""


class Crew:
    """The workers of one phase; an Executor, but for `begin`."""

    def __init__(self, phase: Phase, tell: Tell, fleet: Fleet) -> None:
        self._phase = phase
        self._tell = tell
        self._fleet = fleet
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._waiting: deque[Assignment] = deque()
        """For a process that has run nothing yet."""
        self._watchdog = Watchdog(phase.setup)
        num_workers = fleet.resources.num_workers
        seconds = max(phase.setup.report_seconds, num_workers / MOST_REPORTS)
        self._setup = msgspec.structs.replace(phase.setup, report_seconds=seconds)
        for _ in range(min(phase.max_units or num_workers, num_workers)):
            self._enlist()

    def room(self) -> int:
        """Workers that have no unit; one that is full counts if it can be replaced."""
        free = [p for p in self._free() if not p.full or _is_replaceable(p)]
        return len(free) - len(self._waiting)

    def start(self, assignment: Assignment, upcoming: Sequence[Unit]) -> None:
        """Give a unit to a worker, and ask the kernel for what follows, lest a disk stop it."""
        self._waiting.append(assignment)
        self._place()
        for unit in upcoming:
            for extent in unit.extents:
                if path := self._phase.sources[extent.source].path:
                    _advise(path, extent.start, extent.stop)

    def wait(self, seconds: float) -> None:
        """Serve the lines of workers that are there, or the next one; end overdue workers."""
        for line in self._lines_within(seconds):
            if line is not None:
                process, data = line
                if data is None:
                    self._ended(process)
                else:
                    self._heard(process, messages.decode(data))
        self._send_exam()
        self._place()
        self._end_overdue()

    def _lines_within(self, seconds: float) -> Iterator[Line]:
        """The next line, if it comes in time, and others that are there by then."""
        with contextlib.suppress(queue.Empty):
            yield self._lines.get(timeout=seconds)
            for _ in range(MOST_LINES):
                yield self._lines.get_nowait()

    def wake(self) -> None:
        self._lines.put(None)

    def end(self) -> None:
        for process in self._processes:
            self._fleet.dismiss(process)

    def pids(self) -> set[int]:
        return {process.popen.pid for process in self._processes}

    def _enlist(self) -> Process:
        process = self._fleet.enlist()
        self._processes.append(process)
        process.send(self._setup)
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        return process

    def _listen(self, process: Process) -> None:
        assert process.popen.stdout is not None
        try:
            for line in process.popen.stdout:
                if not line.endswith(b"\n"):
                    break  # killed in the middle of a message
                self._lines.put((process, line))
        except ValueError:
            pass  # closed because the worker was dismissed
        finally:
            self._lines.put((process, None))

    def _free(self) -> list[Process]:
        return [p for p in self._processes if p.running is None and not p.blame]

    def _place(self) -> None:
        """Give waiting units to workers."""
        for assignment in list(self._waiting):
            if process := self._choose(assignment):
                self._waiting.remove(assignment)
                process.running, process.used = assignment, True
                process.uncommitted[assignment.unit.key] = assignment
                process.send(assignment)

    def _choose(self, assignment: Assignment) -> Process | None:
        """A worker for a unit; a careful one gets a process that has run nothing yet, in the place
        of a full one if there is any, even if that takes a moment.
        """
        free = self._free()
        full = [p for p in free if p.full]
        fitting = [p for p in free if not p.full and not (assignment.careful and p.used)]
        if fitting and not (assignment.careful and full):
            return fitting[0]
        replaceable = [p for p in full or free if _is_replaceable(p)]
        return self._replace(replaceable[0]) if replaceable else None

    def _replace(self, process: Process) -> Process:
        """Put a fresh process in the place of one that has nothing left to commit."""
        self._processes.remove(process)
        self._fleet.dismiss(process)
        self._tell(Gone(process.popen.pid, ()))
        if process.full:
            self._tell(Replaced())
        return self._enlist()

    def _heard(self, process: Process, message: messages.Message) -> None:
        process.heard = time.monotonic()
        process.encoding = message if isinstance(message, Encoding) else None
        match message:
            case Progress(tally=tally) if process.running:
                self._tell(Advanced(process.running.unit.key, tally))
            case Started(seconds=seconds):
                process.ready_bytes = resident_bytes(process)
                self._tell(Loaded(seconds))
            case Encoded(full=full):
                running, process.running, process.full = process.running, None, full
                if running:
                    self._tell(executor.Encoded(running.unit.key))
            case Exceeded():
                self._exceeded(process, message)
            case Calibrated():
                process.calibrated = True
                self._tell(executor.Calibrated(process.popen.pid))
            case Outcome():
                del process.uncommitted[message.receipt.key]
                self._tell(Finished(process.popen.pid, message))
            case Failed():
                process.uncommitted.pop(message.key, None)
                error = message.error.rebuild()
                pid = process.popen.pid
                self._tell(executor.Failed(pid, message.key, error, message.source))

    def _exceeded(self, process: Process, message: Exceeded) -> None:
        """A worker has stopped a unit, because its memory had grown too far."""
        del process.uncommitted[message.key]
        process.running, process.full = None, True
        allowed = WITHIN_UNIT * self._phase.setup.growth_bytes
        name = self._phase.sources[message.source].name
        self._tell(
            Crashed(
                message.key,
                "a worker exceeded its share of memory",
                why=f"grew by {message.grown_bytes:,} bytes; its share allows {allowed:,} within "
                "a unit",
                where=f"{name}, after position {message.position}",
                hint="raise --memory or lower --workers; a Python tokenizer may keep too much",
            )
        )

    def _send_exam(self) -> None:
        """Send the exam to workers that read commands; one that loads or encodes would block."""
        if not self._phase.exam.done():
            return
        for process in self._processes:
            if process.ready_bytes and not process.examined and process.running is None:
                process.examined = True
                exam = self._phase.exam.result()
                ids, offsets = exam.expected.ids.tolist(), exam.expected.offsets.tolist()
                process.send(Calibrate(texts=exam.texts, ids=ids, offsets=offsets))

    def _end_overdue(self) -> None:
        """End workers that hang or take too much memory; each arrives as one that has died."""
        for process, why in self._watchdog.overdue(self._processes):
            process.blame = process.blame or why
            self._fleet.kill(process)

    def _ended(self, process: Process) -> None:
        """A worker has died. What it was at has crashed, and if it was at nothing, all it had."""
        if process not in self._processes:
            return  # dismissed, because its memory had grown
        self._processes.remove(process)
        code = self._fleet.dismiss(process)
        signals = "(negative: the signal; -9 is usually memory)"
        why = process.blame or f"ended with exit code {code} {signals}"
        keys = list(process.uncommitted)
        crashed = [process.running.unit.key] if process.running else keys
        if process.examining:
            crashed = []
        for key in crashed:
            self._tell(self._crash(key, process, why))
        others = tuple(key for key in keys if key not in crashed)
        exam = f"a worker {why}" if process.examining else ""
        self._tell(Gone(process.popen.pid, others, exam))
        self._enlist()

    def _crash(self, key: str, process: Process, why: str) -> Crashed:
        what = "a worker was ended" if process.blame else "a worker died"
        if not (found := process.encoding) or not found.step:
            return Crashed(key, what, why)
        why += f", in the {found.step}, over a document of {found.num_bytes:,} bytes"
        where = f"{self._phase.sources[found.source].name}, position {found.position}"
        return Crashed(key, what, why, where)


def _is_replaceable(process: Process) -> bool:
    """Whether nothing is lost with a worker: results count only once it has passed the exam."""
    return not process.uncommitted and (process.calibrated or not process.used)


def _advise(path: Path, start: int, stop: int | None) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        with open(path, "rb") as file:
            length = (stop - start) if stop is not None else 0
            os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass  # advice only: the reader reports what is wrong with the file
