"""By how much a worker's memory has grown since it was ready, and when that is too much."""

from __future__ import annotations

import ctypes
import gc

import psutil

WITHIN_UNIT = 2
"""How many times its growth a worker may reach before a unit is stopped in the middle."""
LONG_BATCHES = 4
"""A batch of so many times the usual bytes holds a long record, which takes what it takes."""


class GrownTooFar(Exception):
    """Unwinds a unit."""

    def __init__(self, grown_bytes: int) -> None:
        super().__init__(grown_bytes)
        self.grown_bytes = grown_bytes


class Growth:
    """Measures what is alive: what an allocator keeps for later is given back first."""

    def __init__(self, growth_bytes: int, batch_bytes: int) -> None:
        self._growth_bytes = growth_bytes
        self._batch_bytes = batch_bytes
        self._done_bytes = 0
        self._process = psutil.Process()
        self._ready_bytes = self._alive_bytes()

    def check(self, done_bytes: int) -> None:
        """After a batch: raise GrownTooFar where the unit cannot go on in this process.

        `done_bytes` counts the bytes of the unit so far.
        """
        long = done_bytes - self._done_bytes > LONG_BATCHES * self._batch_bytes
        self._done_bytes = done_bytes
        if not long and (grown_bytes := self._beyond(WITHIN_UNIT * self._growth_bytes)):
            raise GrownTooFar(grown_bytes)

    def is_full(self) -> bool:
        """After a unit: whether a fresh process should take the place of this one."""
        self._done_bytes = 0
        return self._beyond(self._growth_bytes) > 0

    def _beyond(self, limit_bytes: int) -> int:
        """Bytes that the process has grown by, if they are more than the limit, else 0."""
        if self._resident_bytes() - self._ready_bytes <= limit_bytes:
            return 0
        grown = self._alive_bytes() - self._ready_bytes
        return grown if grown > limit_bytes else 0

    def _alive_bytes(self) -> int:
        gc.collect()
        _trim()
        return self._resident_bytes()

    def _resident_bytes(self) -> int:
        return int(self._process.memory_info().rss)


def _trim() -> None:
    """Give free pages back to the system; glibc alone has a call for it."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
