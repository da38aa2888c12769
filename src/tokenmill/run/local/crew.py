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
"""Most messages to handle before anything else is checked."""
Line = tuple[Process, bytes | None] | None
"""A process and its message, or None after its last one. A lone None ends a wait."""


class Crew:
    """The workers of one phase. An Executor without `begin`."""

    def __init__(self, phase: Phase, tell: Tell, fleet: Fleet) -> None:
        self._phase = phase
        self._tell = tell
        self._fleet = fleet
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._waiting: deque[Assignment] = deque()
        """Assignments that wait for a worker."""
        self._watchdog = Watchdog(phase.setup)
        num_workers = fleet.resources.num_workers
        seconds = max(phase.setup.report_seconds, num_workers / MOST_REPORTS)
        self._setup = msgspec.structs.replace(phase.setup, report_seconds=seconds)
        for _ in range(min(phase.max_units or num_workers, num_workers)):
            self._enlist()

    def room(self) -> int:
        """Return the number of idle workers. A full worker counts if it can be replaced."""
        free = [p for p in self._free() if not p.full or _is_replaceable(p)]
        return len(free) - len(self._waiting)

    def start(self, assignment: Assignment, upcoming: Sequence[Unit]) -> None:
        """Give a unit to a worker, and ask the kernel to read the upcoming files ahead."""
        self._waiting.append(assignment)
        self._place()
        for unit in upcoming:
            for extent in unit.extents:
                if path := self._phase.sources[extent.source].path:
                    _advise(path, extent.start, extent.stop)

    def wait(self, seconds: float) -> None:
        """Handle messages that have arrived, or wait for the next one. Ends overdue workers."""
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
        """Yield the next line if it arrives in time, and all other lines that have arrived."""
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
                    break  # the worker was killed in the middle of a message
                self._lines.put((process, line))
        except ValueError:
            pass  # closed, because the worker was dismissed
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
        """Return a worker for a unit, or None if there is none.

        A careful unit gets a fresh process, which replaces a full worker if there is one.
        """
        free = self._free()
        full = [p for p in free if p.full]
        fitting = [p for p in free if not p.full and not (assignment.careful and p.used)]
        if fitting and not (assignment.careful and full):
            return fitting[0]
        replaceable = [p for p in full or free if _is_replaceable(p)]
        return self._replace(replaceable[0]) if replaceable else None

    def _replace(self, process: Process) -> Process:
        """Replace a process that has nothing left to commit by a fresh one."""
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
        """Handle a worker that stopped its unit because its memory had grown too much."""
        del process.uncommitted[message.key]
        process.running, process.full = None, True
        allowed = WITHIN_UNIT * self._phase.setup.growth_bytes
        name = self._phase.sources[message.source].name
        self._tell(
            Crashed(
                message.key,
                "a worker exceeded its share of memory",
                why=f"grew by {message.grown_bytes:,} bytes; its share allows {allowed:,} per unit",
                where=f"{name}, after position {message.position}",
                hint="raise --memory or lower --workers; a Python tokenizer may leak memory",
            )
        )

    def _send_exam(self) -> None:
        """Send the exam to idle workers. Writing to one that loads or encodes would block."""
        if not self._phase.exam.done():
            return
        for process in self._processes:
            if process.ready_bytes and not process.examined and process.running is None:
                process.examined = True
                exam = self._phase.exam.result()
                ids, offsets = exam.expected.ids.tolist(), exam.expected.offsets.tolist()
                process.send(Calibrate(texts=exam.texts, ids=ids, offsets=offsets))

    def _end_overdue(self) -> None:
        """Kill workers that hang or use too much memory. They are then handled as dead."""
        for process, why in self._watchdog.overdue(self._processes):
            process.blame = process.blame or why
            self._fleet.kill(process)

    def _ended(self, process: Process) -> None:
        """Handle a dead worker. Its running unit has crashed, or else all its uncommitted units."""
        if process not in self._processes:
            return  # it was dismissed because its memory had grown
        self._processes.remove(process)
        code = self._fleet.dismiss(process)
        signals = "(negative: killed by a signal; -9 usually means out of memory)"
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
        why += f", in the {found.step}, on a document of {found.num_bytes:,} bytes"
        where = f"{self._phase.sources[found.source].name}, position {found.position}"
        return Crashed(key, what, why, where)


def _is_replaceable(process: Process) -> bool:
    """Whether a worker can be replaced without losing results that still need its exam."""
    return not process.uncommitted and (process.calibrated or not process.used)


def _advise(path: Path, start: int, stop: int | None) -> None:
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        with open(path, "rb") as file:
            length = (stop - start) if stop is not None else 0
            os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass  # only advice: the reader reports problems of the file
