"""Watch workers from outside, because a worker cannot report that it hangs within a single call.

A call of an engine cannot be interrupted, so its process is killed. The document is never rejected
for it: if the same unit kills two workers, the build ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import psutil

from tokenmill.run.local.fleet import Process
from tokenmill.run.units.assignment import LONG_BATCH, Setup
from tokenmill.run.units.growth import WITHIN_UNIT

STALL_SECONDS = 300.0
"""How long a worker may encode without a message, plus a second for every 100 kB of text."""
STALL_BYTES_A_SECOND = 100_000
MEMORY_A_BYTE = 1_000
"""Memory growth allowed for each byte of text. `tokenizers` needs 30 to 200 bytes (measured)."""
BEYOND_OWN_LIMIT = 2
"""Workers check their own, tighter limit between batches. The watchdog allows twice as much."""
CHECK_SECONDS = 0.2
MOST_TIME = 0.01
"""The most time to spend on checks, as a share. Many workers are checked less often."""
ASLEEP_SECONDS = 10.0
"""After this long without a check, this process itself was stopped or busy.

Workers are not blamed for that time."""


class Watchdog:
    """Finds workers that must be killed."""

    def __init__(self, setup: Setup) -> None:
        self._usual_bytes = LONG_BATCH * setup.batch_bytes
        self._growth_bytes = BEYOND_OWN_LIMIT * WITHIN_UNIT * setup.growth_bytes
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
        grown = resident_bytes(process) - process.ready_bytes
        allowed = self._growth_bytes + self._num_bytes(process) * MEMORY_A_BYTE
        return f"took {grown:,} bytes of memory, more than {allowed:,}" if grown > allowed else ""

    def _num_bytes(self, process: Process) -> int:
        return process.encoding.num_bytes if process.encoding else self._usual_bytes


def resident_bytes(process: Process) -> int:
    """Return the memory of a worker. 0 if it is gone."""
    try:
        return int(process.system.memory_info().rss)
    except psutil.Error:
        return 0
