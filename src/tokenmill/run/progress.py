"""The progress of a run, for terminals, logs and other programs."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import psutil
from msgspec import Meta

from tokenmill.core.child import child_pids
from tokenmill.read.units import Unit
from tokenmill.run.executor import Receipt, Tally

REFRESH_SECONDS = 0.25
MEMORY_SECONDS = 1.0
MOST_TIME = 0.01
"""The most time to spend on measuring, as a share. Many workers are measured less often."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The progress of a run at one moment."""

    elapsed_seconds: float
    done_bytes: int
    """Finished input, in bytes on disk."""
    total_bytes: int
    read_bytes: int
    """Records read, in decompressed bytes."""
    written_bytes: int
    documents: int
    tokens: int
    rejected: int
    num_workers: int
    cpu_cores: float
    memory_bytes: int
    peak_bytes: int
    resumed_bytes: int
    resumed: Tally
    """Work of earlier attempts. The counts above include it."""
    num_awaited: int
    """Items that other agents hold, if this agent has nothing else to do."""
    rejected_by_reason: dict[str, int] = field(default_factory=dict)
    """Rejected records of finished units."""
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """See `ProgressBoard.seconds`."""

    @property
    def eta_seconds(self) -> float | None:
        """The remaining seconds at the average speed so far, by bytes on disk."""
        done = self.done_bytes - self.resumed_bytes
        if done <= 0 or self.elapsed_seconds < 1:
            return None
        return self.elapsed_seconds * max(self.total_bytes - self.done_bytes, 0) / done


class RunningUnit(msgspec.Struct, frozen=True):
    """A unit that a worker runs: for how long so far, and how long still at its average speed."""

    key: Annotated[str, Meta(max_length=100)]
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    left_seconds: Annotated[float, Meta(ge=0, le=1e12)]


Listener = Callable[[Snapshot], None]


@dataclass(slots=True)
class ProgressBoard:
    """Collects tallies of running units and receipts of finished ones."""

    total_bytes: int
    token_bytes: int
    listeners: list[Listener]
    pids: Callable[[], set[int]] = set
    """Returns the process ids of workers on this machine."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of all workers by stage. `start` is the slowest load of an engine. `flush_wait` is
    the time spent only waiting for the disk."""
    num_awaited: int = 0
    """See `Snapshot.num_awaited`."""
    num_recycled: int = 0
    """Workers replaced because their memory had grown."""
    finished_bytes: int = 0
    """Input bytes on disk of finished units."""
    disk_bytes: int = 0
    """Bytes of the files of finished units."""
    rejected: dict[str, int] = field(default_factory=dict)
    """Rejected records of finished units, by reason."""
    ratio: float = 1.0
    """Input bytes on disk for each byte of records: an estimate until a unit is finished."""
    _started: float = field(default_factory=time.monotonic)
    _running: dict[str, tuple[Unit, Tally, float]] = field(default_factory=dict)
    """Units with their last tallies, and when they were started."""
    _resumed_bytes: int = 0
    _totals: Tally = field(default_factory=Tally)
    _resumed: Tally = field(default_factory=Tally)
    _shown: float = 0.0
    _next_measure: float = 0.0
    _cpu: tuple[float, float] | None = None
    """When the CPU seconds of all processes were measured last, and what they were."""
    _cores: float = 0.0
    _memory: int = 0
    _peak_memory: int = 0
    _resident_before: int = field(default_factory=lambda: _most_resident_bytes())

    def resume(self, receipts: Iterable[Receipt]) -> None:
        """Count the work of earlier attempts."""
        for receipt in receipts:
            self._count(receipt)
        self._resumed_bytes = self.finished_bytes
        self._resumed = msgspec.structs.replace(self._totals)

    def engine_loaded(self, seconds: float) -> None:
        """Record that a worker has loaded its engine in `seconds`."""
        self.seconds["start"] = max(self.seconds.get("start", 0.0), seconds)

    def start(self, unit: Unit) -> None:
        """Record that a worker starts a unit, so the run waits for no other agent."""
        self.num_awaited = 0  # here, because the unit may run in this process, within one call
        self._running[unit.key] = (unit, Tally(), time.monotonic())

    def advance(self, key: str, tally: Tally) -> None:
        """Record that another batch of a unit is done."""
        if key in self._running:
            unit, _, started = self._running[key]
            self._running[key] = (unit, tally, started)
        self.refresh()

    def finish(self, unit: Unit, receipt: Receipt, seconds: dict[str, float]) -> None:
        """Record that a unit has its receipt."""
        self.drop(unit.key)
        self._count(receipt)
        read = sum(counts.record_bytes for counts in receipt.counts.values())
        self.ratio = unit.num_bytes / read if read else self.ratio
        for stage, spent in seconds.items():
            self.spend(stage, spent)
        self.refresh()

    def spend(self, stage: str, seconds: float) -> None:
        """Add seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def drop(self, key: str) -> Tally:
        """Record that a unit is no longer running, and return its last tally."""
        return self._running.pop(key)[1] if key in self._running else Tally()

    def refresh(self, *, force: bool = False) -> None:
        """Call the listeners, at most once per `REFRESH_SECONDS` unless `force` is set."""
        now = time.monotonic()
        if force or now - self._shown >= REFRESH_SECONDS:
            self._shown = now
            self._measure(now)
            shot = self.snapshot()
            for listener in self.listeners:
                listener(shot)

    def snapshot(self) -> Snapshot:
        """Return the current progress."""
        sums, done_bytes = msgspec.structs.replace(self._totals), self.finished_bytes
        for unit, tally, _ in self._running.values():
            sums.add(tally)
            done_bytes += self._done_of(unit, tally)
        return Snapshot(
            elapsed_seconds=time.monotonic() - self._started,
            done_bytes=min(done_bytes, self.total_bytes),
            total_bytes=self.total_bytes,
            read_bytes=sums.bytes,
            written_bytes=sums.tokens * self.token_bytes,
            documents=sums.documents,
            tokens=sums.tokens,
            rejected=sums.rejected,
            num_workers=len(self.pids()),
            cpu_cores=self._cores,
            memory_bytes=self._memory,
            peak_bytes=self.peak_bytes,
            resumed_bytes=self._resumed_bytes,
            resumed=self._resumed,
            num_awaited=self.num_awaited,
            rejected_by_reason=dict(self.rejected),
            stage_seconds={name: round(spent, 3) for name, spent in self.seconds.items()},
        )

    def last_unit(self) -> RunningUnit | None:
        """Return the running unit that will end last. None before any has progress."""
        now = time.monotonic()
        found = [
            RunningUnit(unit.key, now - started, (now - started) * (unit.num_bytes / done - 1))
            for unit, tally, started in self._running.values()
            if (done := self._done_of(unit, tally))
        ]
        return max(found, key=lambda unit: unit.left_seconds, default=None)

    def _done_of(self, unit: Unit, tally: Tally) -> int:
        """Return the input bytes on disk that a running unit has read."""
        return min(int(tally.bytes * self.ratio), unit.num_bytes)

    @property
    def peak_bytes(self) -> int:
        """The most memory that all processes have used so far, in bytes.

        Measurements can miss a short peak of this process, for example when it writes a large
        manifest. The operating system records that peak, so it is included.
        """
        resident = _most_resident_bytes()
        return max(self._peak_memory, resident if resident > self._resident_before else 0)

    def _count(self, receipt: Receipt) -> None:
        self.finished_bytes += receipt.input_bytes or 0
        self.disk_bytes += sum(file.bytes for file in receipt.files)
        for each in receipt.counts.values():
            for reason, number in each.rejected.items():
                self.rejected[reason] = self.rejected.get(reason, 0) + number
            self._totals.add(
                Tally(
                    bytes=each.record_bytes,
                    documents=each.documents,
                    tokens=each.tokens,
                    rejected=each.num_rejected,
                )
            )

    def _measure(self, now: float) -> None:
        if now < self._next_measure:
            return
        begun = time.thread_time()
        cpu, memory = usage(self.pids())
        if self._cpu:
            self._cores = max(cpu - self._cpu[1], 0.0) / (now - self._cpu[0])
        self._cpu, self._memory = (now, cpu), memory
        self._peak_memory = max(self._peak_memory, memory)
        spent = time.thread_time() - begun
        self._next_measure = now + max(MEMORY_SECONDS, spent / MOST_TIME)


def usage(workers: set[int]) -> tuple[float, int]:
    """Return CPU seconds and memory of this process, its workers, and the parsers of both.

    Shared pages are counted once if possible.
    """
    own, cpu, memory = psutil.Process(), 0.0, 0
    parsers = set()
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has just ended
            parsers |= {child.pid} if child.ppid() in workers else set()
    for pid in {own.pid, *workers, *child_pids(), *parsers}:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            cpu += times.user + times.system
            memory += getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss
        except psutil.Error:
            continue
    return cpu, memory


def _most_resident_bytes() -> int:
    """Return the peak memory of this process. 0 if the system does not report it."""
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
