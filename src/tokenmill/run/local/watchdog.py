"""Watches workers from outside: one that hangs or swells within a single call cannot tell.

A call of an engine cannot be interrupted, so its process is ended. It is never a document that is
rejected: what ended a worker twice ends the build.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import psutil

from tokenmill.run.local.fleet import Process
from tokenmill.run.units.assignment import LONG_BATCH, Setup
from tokenmill.run.units.growth import WITHIN_UNIT

STALL_SECONDS = 300.0
"""Without a message from a worker that encodes, plus a second for every 100 kB that it encodes."""
STALL_BYTES_A_SECOND = 100_000
MEMORY_A_BYTE = 1_000
"""By how much a worker may grow for a byte of text: `tokenizers` takes 30 to 200 (measured)."""
BEYOND_OWN_LIMIT = 2
"""Between batches a worker stops by itself, and knows better: here it may have twice as much."""
CHECK_SECONDS = 0.2
MOST_TIME = 0.01
"""Share of the time that may be spent on looking: many workers are looked at less often."""
ASLEEP_SECONDS = 10.0
"""After so long without a look, this process was stopped or busy: no worker is to blame for it."""


class Watchdog:
    """Finds workers that are to be ended."""

    def __init__(self, setup: Setup) -> None:
        self._usual_bytes = LONG_BATCH * setup.batch_bytes
        self._growth_bytes = BEYOND_OWN_LIMIT * WITHIN_UNIT * setup.growth_bytes
        self._looked = time.monotonic()
        self._next_look = self._looked + CHECK_SECONDS

    def overdue(self, processes: Sequence[Process]) -> Iterator[tuple[Process, str]]:
        """Workers that have made no progress or grown too far, and what they did, in words."""
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
        grown = resident_bytes(process) - process.ready_bytes
        allowed = self._growth_bytes + self._num_bytes(process) * MEMORY_A_BYTE
        return f"took {grown:,} bytes of memory, more than {allowed:,}" if grown > allowed else ""

    def _num_bytes(self, process: Process) -> int:
        return process.encoding.num_bytes if process.encoding else self._usual_bytes


def resident_bytes(process: Process) -> int:
    """The memory of a worker; 0 if it is gone."""
    try:
        return int(process.system.memory_info().rss)
    except psutil.Error:
        return 0
