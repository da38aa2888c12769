"""The workers of a phase on this machine: worker processes, or only this process."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import psutil

from tokenmill.core.child import Child
from tokenmill.core.errors import EngineError, InternalError, TokenmillError
from tokenmill.run.executor import (
    LONG_BATCH,
    Advanced,
    Assignment,
    Calibrate,
    Calibrated,
    Command,
    Crashed,
    Encoded,
    Encoding,
    Failed,
    Gone,
    Loaded,
    Outcome,
    Phase,
    Report,
    Tell,
    failure,
)
from tokenmill.run.job import Setup
from tokenmill.run.worker import UnitRunner

MOST_REPORTS = 200
"""Reports of progress a second, of all workers together."""
MOST_MESSAGES = 1_000
"""Most messages to handle before anything else is checked."""
STALL_SECONDS = 300.0
"""How long a worker may encode without a message, plus a second for every 100 kB of text."""
STALL_BYTES_A_SECOND = 100_000
MEMORY_A_BYTE = 1_000
"""Memory growth allowed for each byte of text. `tokenizers` needs 30 to 200 bytes (measured)."""
GROWTHS = 4
"""The multiple of its allowed growth at which a worker is killed. It checks itself between batches,
and stops at half of this."""
CHECK_SECONDS = 0.2
MOST_TIME = 0.01
"""The most time to spend on checks, as a share. Many workers are checked less often."""
ASLEEP_SECONDS = 10.0
"""After this long without a check, this process itself was stopped or busy.

Workers are not blamed for that time."""


@dataclass(eq=False)
class Process:
    """A worker process, as the main process sees it."""

    child: Child
    running: Assignment | None = None
    uncommitted: dict[str, Assignment] = field(default_factory=dict)
    """The running unit and the units that are being flushed, by key."""
    used: bool = False
    """Whether it has been given a unit."""
    examined: bool = False
    calibrated: bool = False
    full: bool = False
    """Whether its memory has grown beyond its share, so that it gets no more units."""
    heard: float = 0.0
    """The time of the last message to or from it, by `time.monotonic`."""
    encoding: Encoding | None = None
    """The document that it is encoding, if it has announced one."""
    ready_bytes: int = 0
    """Its memory after its engine was loaded. 0 before."""
    blame: str = ""
    """Why the main process killed it. "" if it did not."""
    listener: threading.Thread | None = None

    @cached_property
    def _system(self) -> psutil.Process:
        return psutil.Process(self.child.pid)

    @property
    def examining(self) -> bool:
        """Whether it is encoding the calibration texts."""
        return self.examined and not self.calibrated

    @property
    def is_free(self) -> bool:
        """Whether it can get a unit."""
        return self.running is None and not self.blame

    @property
    def is_replaceable(self) -> bool:
        """Whether it can be replaced without losing results that still need its exam."""
        return not self.uncommitted and (self.calibrated or not self.used)

    @property
    def reads_carefully(self) -> bool:
        """Whether it runs a careful unit and is between documents: it is reading or writing."""
        careful = self.running is not None and self.running.careful
        return careful and self.ready_bytes > 0 and self.encoding is None

    @property
    def resident_bytes(self) -> int:
        """Its memory. 0 if it is gone."""
        try:
            return int(self._system.memory_info().rss)
        except psutil.Error:
            return 0

    def send(self, command: Command) -> None:
        """Send a command. If the process has ended, that arrives as a message."""
        self.heard = time.monotonic()
        self.child.send(command)

    def end(self) -> None:
        """Kill the process and what it has started, and close its pipes."""
        self.child.kill()
        if self.listener:
            self.listener.join(1.0)
        self.child.end()


Heard = tuple[Process, bytearray | None] | None
"""A process and its message, or None after its last one. A lone None ends a wait."""


class Processes:
    """The worker processes of one phase. Implements `Workers`."""

    def __init__(self, phase: Phase, tell: Tell, fresh: Callable[[], Child]) -> None:
        """Start the workers of a phase; `fresh` returns a worker process."""
        self._phase, self._tell, self._fresh = phase, tell, fresh
        self._heard: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._waiting: deque[Assignment] = deque()
        """Assignments that wait for a worker."""
        self._watchdog = Watchdog(phase.setup)
        num_workers = phase.setup.resources.num_workers
        seconds = max(phase.setup.report_seconds, num_workers / MOST_REPORTS)
        self._setup = msgspec.structs.replace(phase.setup, report_seconds=seconds)
        self._decode = msgspec.json.Decoder(Report).decode
        for _ in range(min(phase.max_units or num_workers, num_workers)):
            self._add()

    def room(self) -> int:
        """Return the number of idle workers. A full worker counts if it can be replaced."""
        free = [p for p in self._processes if p.is_free and (not p.full or p.is_replaceable)]
        return len(free) - len(self._waiting)

    def start(self, assignment: Assignment) -> None:
        self._waiting.append(assignment)
        self._place()

    def wait(self, seconds: float) -> None:
        """Handle messages that have arrived, or wait for the next one. Ends overdue workers."""
        for heard in self._heard_within(seconds):
            if heard is not None:
                process, message = heard
                if message is None:
                    self._ended(process)
                else:
                    self._hear(process, self._decoded(message))
        self._send_exam()
        self._place()
        for process, why in self._watchdog.overdue(self._processes):
            process.blame = process.blame or why
            process.child.kill()  # it is then handled as dead

    def wake(self) -> None:
        self._heard.put(None)

    def end(self) -> None:
        for process in self._processes:
            process.child.kill()
        for process in self._processes:
            process.end()

    def pids(self) -> set[int]:
        return {process.child.pid for process in self._processes}

    def _heard_within(self, seconds: float) -> Iterator[Heard]:
        """Yield the next message if it arrives in time, and all others that have arrived."""
        with contextlib.suppress(queue.Empty):
            yield self._heard.get(timeout=seconds)
            for _ in range(MOST_MESSAGES):
                yield self._heard.get_nowait()

    def _decoded(self, message: bytearray) -> Report:
        try:
            report: Report = self._decode(message)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            why = f"{error}, in {bytes(message)[:200]!r}"
            hint = "please report this"
            raise InternalError("a worker sent an invalid message", why=why, hint=hint) from error
        return report

    def _add(self) -> Process:
        process = Process(self._fresh())
        self._processes.append(process)
        process.send(self._setup)
        process.listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        process.listener.start()
        return process

    def _listen(self, process: Process) -> None:
        try:
            for message in process.child.messages():
                self._heard.put((process, message))
        finally:
            self._heard.put((process, None))

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
        free = [process for process in self._processes if process.is_free]
        full = [process for process in free if process.full]
        fitting = [p for p in free if not p.full and not (assignment.careful and p.used)]
        if fitting and not (assignment.careful and full):
            return fitting[0]
        replaceable = [process for process in full or free if process.is_replaceable]
        return self._replace(replaceable[0]) if replaceable else None

    def _replace(self, process: Process) -> Process:
        """Replace a process that has nothing left to commit by a fresh one."""
        self._processes.remove(process)
        process.end()
        self._tell(process.child.pid, Gone((), was_full=process.full))
        return self._add()

    def _hear(self, process: Process, message: Report) -> None:
        process.heard = time.monotonic()
        process.encoding = message if isinstance(message, Encoding) else None
        match message:
            case Encoding():
                return
            case Loaded():
                process.ready_bytes = process.resident_bytes
            case Calibrated():
                process.calibrated = True
            case Encoded(full=full):
                process.running, process.full = None, full
            case Crashed(key=key):  # its memory had grown too much, and it has stopped the unit
                del process.uncommitted[key]
                process.running, process.full = None, True
            case Outcome():
                del process.uncommitted[message.receipt.key]
            case Failed(key=key):
                process.uncommitted.pop(key, None)
        self._tell(process.child.pid, message)

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

    def _ended(self, process: Process) -> None:
        """Handle a dead worker. Its running unit has crashed, or else all its uncommitted units."""
        if process not in self._processes:
            return  # it was replaced because its memory had grown
        self._processes.remove(process)
        why = process.blame or process.child.death().why.removeprefix("it ")
        process.end()
        keys = list(process.uncommitted)
        crashed = [process.running.unit.key] if process.running else keys
        if process.examining:
            crashed = []
        for key in crashed:
            self._tell(process.child.pid, self._crash(key, process, why))
        others = tuple(key for key in keys if key not in crashed)
        exam = f"a worker {why}" if process.examining else ""
        self._tell(process.child.pid, Gone(others, exam))
        self._add()

    def _crash(self, key: str, process: Process, why: str) -> Crashed:
        what = "a worker was ended" if process.blame else "a worker died"
        if not (found := process.encoding) or not found.step:
            return Crashed(key, what, why)
        why += f", in the {found.step}, on a document of {found.num_bytes:,} bytes"
        where = f"{self._phase.sources[found.source].name}, position {found.position}"
        return Crashed(key, what, why, where)


class Watchdog:
    """Finds workers that must be killed, because a worker cannot report that it hangs in a call.

    A call of an engine cannot be interrupted, so its process is killed. The document is never
    rejected for it: if the same unit kills two workers, the build ends.
    """

    def __init__(self, setup: Setup) -> None:
        self._usual_bytes = LONG_BATCH * setup.batch_bytes
        self._growth_bytes = GROWTHS * setup.growth_bytes
        self._looked = time.monotonic()
        self._next_look = self._looked + CHECK_SECONDS

    def overdue(self, processes: Sequence[Process]) -> Iterator[tuple[Process, str]]:
        """Yield workers that hang or use too much memory, with the reason in words."""
        now = time.monotonic()
        if now < self._next_look:
            return
        passed, self._looked = now - self._looked, now
        begun = time.thread_time()
        for process in processes:
            if passed > ASLEEP_SECONDS:
                process.heard += passed
            if why := self._stalled(process, now) or self._swollen(process):
                yield process, why
        spent = time.thread_time() - begun
        self._next_look = now + max(CHECK_SECONDS, spent / MOST_TIME)

    def _stalled(self, process: Process, now: float) -> str:
        if not (process.running or process.examining) or process.reads_carefully:
            return ""
        allowed = STALL_SECONDS + self._num_bytes(process) / STALL_BYTES_A_SECOND
        return f"made no progress for {allowed:,.0f} s" if now - process.heard > allowed else ""

    def _swollen(self, process: Process) -> str:
        grown = process.resident_bytes - process.ready_bytes
        allowed = self._growth_bytes + self._num_bytes(process) * MEMORY_A_BYTE
        return f"took {grown:,} bytes of memory, more than {allowed:,}" if grown > allowed else ""

    def _num_bytes(self, process: Process) -> int:
        return process.encoding.num_bytes if process.encoding else self._usual_bytes


class InProcess:
    """Runs units in this process: `start` runs the whole unit. Implements `Workers`."""

    def __init__(self, phase: Phase, tell: Tell) -> None:
        self._tell, self._pid = tell, os.getpid()
        self._woken = threading.Event()
        try:
            engine = None
            if phase.local_engine:
                phase.exam.result()  # until then another thread uses the object
                engine = phase.local_engine()
            self._runner = UnitRunner(phase.setup, engine)
            tell(self._pid, Loaded(self._runner.startup_seconds))
            self._runner.calibrate(phase.exam.result())
        except EngineError as error:
            tell(self._pid, failure("", error))
        tell(self._pid, Calibrated())

    def room(self) -> int:
        """Always 1, because a unit is done when `start` returns."""
        return 1

    def start(self, assignment: Assignment) -> None:
        key, pid, tell = assignment.unit.key, self._pid, self._tell
        try:
            finished = self._runner.run(assignment, lambda tally: tell(pid, Advanced(key, tally)))
            tell(pid, Encoded(key))
            outcome = finished.commit()
        except TokenmillError as error:
            tell(pid, failure(key, error, self._runner.current_source))
        else:
            tell(pid, outcome)

    def wait(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        """Do nothing, because no unit is running."""

    def pids(self) -> set[int]:
        return {self._pid}
