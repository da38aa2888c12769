"""What a run has done so far, for people on a terminal, in a log, and for machines."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tokenmill.read.formats.tables.pool import parser_pids
from tokenmill.read.units import Unit
from tokenmill.run.units.assignment import Receipt, Tally

REFRESH_SECONDS = 0.25
MEMORY_SECONDS = 1.0
MOST_TIME = 0.01
"""Share of the time that may be spent on measuring: many workers are measured less often."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of a run."""

    elapsed_seconds: float
    done_bytes: int
    """Input bytes on disk."""
    total_bytes: int
    read_bytes: int
    """Record bytes, decompressed."""
    written_bytes: int
    documents: int
    tokens: int
    rejected: int
    num_workers: int
    cpu_cores: float
    memory_bytes: int
    peak_bytes: int
    resumed_bytes: int
    num_awaited: int
    """Items that other agents hold, if this one has nothing else to do."""

    @property
    def eta_seconds(self) -> float | None:
        """Time to go at the speed so far, by bytes on disk."""
        done = self.done_bytes - self.resumed_bytes
        if done <= 0 or self.elapsed_seconds < 1:
            return None
        return self.elapsed_seconds * max(self.total_bytes - self.done_bytes, 0) / done


Listener = Callable[[Snapshot], None]


@dataclass(slots=True)
class ProgressBoard:
    """Collects tallies of running units and receipts of finished ones."""

    total_bytes: int
    token_bytes: int
    listener: Listener
    pids: Callable[[], set[int]] = set
    """Processes of workers on this machine."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of all workers by stage; `start` is the slowest load of an engine, `flush_wait` the
    time in which there was nothing left to do but to wait for the disk."""
    listeners: list[Listener] = field(default_factory=list)
    """Others that want to hear."""
    num_awaited: int = 0
    """As in `Snapshot`."""
    num_recycled: int = 0
    """Workers replaced because their memory had grown."""
    _started: float = field(default_factory=time.monotonic)
    _running: dict[str, tuple[Unit, Tally]] = field(default_factory=dict)
    _done_bytes: int = 0
    _resumed_bytes: int = 0
    _totals: Tally = field(default_factory=Tally)
    _shown: float = 0.0
    _measured: float = 0.0
    _next_measure: float = 0.0
    _cpu: tuple[float, float] = (0.0, 0.0)
    _cores: float = 0.0
    _memory: int = 0
    _peak_memory: int = 0
    _resident_before: int = field(default_factory=lambda: _most_resident_bytes())
    _ratio: float = 1.0

    def resume(self, receipts: Mapping[str, Receipt], units: Mapping[str, Unit]) -> None:
        """Count what earlier attempts have done."""
        for key, receipt in receipts.items():
            self._count(receipt)
            self._done_bytes += units[key].num_bytes if key in units else 0
        self._resumed_bytes = self._done_bytes

    def engine_loaded(self, seconds: float) -> None:
        """A worker is ready."""
        self.seconds["start"] = max(self.seconds.get("start", 0.0), seconds)

    def start(self, unit: Unit) -> None:
        """A worker begins a unit."""
        self._running[unit.key] = (unit, Tally())

    def advance(self, key: str, tally: Tally) -> None:
        """Another batch of a unit is done."""
        if key in self._running:
            self._running[key] = (self._running[key][0], tally)
        self.refresh()

    def finish(self, unit: Unit, receipt: Receipt, seconds: dict[str, float]) -> None:
        """A unit has its receipt."""
        self.drop(unit.key)
        self._count(receipt)
        self._done_bytes += unit.num_bytes
        read = sum(counts.record_bytes for counts in receipt.counts.values())
        self._ratio = unit.num_bytes / read if read else self._ratio
        for stage, spent in seconds.items():
            self.spend(stage, spent)
        self.refresh()

    def spend(self, stage: str, seconds: float) -> None:
        """Book time on a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def drop(self, key: str) -> Tally:
        """A unit is no longer running; returns how far it had come."""
        return self._running.pop(key)[1] if key in self._running else Tally()

    def refresh(self, *, force: bool = False) -> None:
        """Tell the listener, but not more often than it can be read."""
        now = time.monotonic()
        if force or now - self._shown >= REFRESH_SECONDS:
            self._shown = now
            self._measure(now)
            shot = self.snapshot()
            for listener in (self.listener, *self.listeners):
                listener(shot)

    def snapshot(self) -> Snapshot:
        """Everything as it is now."""
        running = [tally for _, tally in self._running.values()]
        part = sum(
            min(int(tally.bytes * self._ratio), unit.num_bytes)
            for unit, tally in self._running.values()
        )
        tokens = self._totals.tokens + sum(tally.tokens for tally in running)
        return Snapshot(
            elapsed_seconds=time.monotonic() - self._started,
            done_bytes=min(self._done_bytes + part, self.total_bytes),
            total_bytes=self.total_bytes,
            read_bytes=self._totals.bytes + sum(tally.bytes for tally in running),
            written_bytes=tokens * self.token_bytes,
            documents=self._totals.documents + sum(tally.documents for tally in running),
            tokens=tokens,
            rejected=self._totals.rejected + sum(tally.rejected for tally in running),
            num_workers=len(self.pids()),
            cpu_cores=self._cores,
            memory_bytes=self._memory,
            peak_bytes=self.peak_bytes,
            resumed_bytes=self._resumed_bytes,
            num_awaited=self.num_awaited,
        )

    @property
    def peak_bytes(self) -> int:
        """Most memory of all processes so far.

        This process alone may need more for a moment between two measurements, to write a large
        manifest. The system keeps the peak of one process, from its start.
        """
        resident = _most_resident_bytes()
        return max(self._peak_memory, resident if resident > self._resident_before else 0)

    def _count(self, receipt: Receipt) -> None:
        for counts in receipt.counts.values():
            self._totals.bytes += counts.record_bytes
            self._totals.documents += counts.documents
            self._totals.tokens += counts.tokens
            self._totals.rejected += counts.num_rejected

    def _all_pids(self) -> set[int]:
        """The main process, the workers, and what parses tables for them."""
        own, workers = psutil.Process(), self.pids()
        return {own.pid, *workers, *parser_pids()} | {
            child.pid for child in own.children(recursive=True) if child.ppid() in workers
        }

    def _measure(self, now: float) -> None:
        if now < self._next_measure:
            return
        begun = time.thread_time()
        cpu, memory = _usage(self._all_pids())
        if self._measured:
            self._cores = max(cpu - self._cpu[1], 0.0) / (now - self._cpu[0])
        self._cpu, self._measured, self._memory = (now, cpu), now, memory
        self._peak_memory = max(self._peak_memory, memory)
        spent = time.thread_time() - begun
        self._next_measure = now + max(MEMORY_SECONDS, spent / MOST_TIME)


def _usage(pids: set[int]) -> tuple[float, int]:
    """CPU seconds and memory of some processes; shared pages are counted once where known."""
    cpu, memory = 0.0, 0
    for pid in pids:
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            cpu += times.user + times.system
            memory += getattr(process.memory_full_info(), "pss", 0) or process.memory_info().rss
        except psutil.Error:
            continue
    return cpu, memory


def _most_resident_bytes() -> int:
    """Most memory that this process has ever had; 0 if the system doesn't say."""
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
