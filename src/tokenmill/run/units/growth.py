"""Measure by how much a worker's memory has grown since it was ready."""

from __future__ import annotations

import ctypes
import gc

import psutil

WITHIN_UNIT = 2
"""The multiple of its allowed growth at which a worker stops in the middle of a unit."""
LONG_BATCHES = 4
"""Batches larger than this multiple of the usual size hold a long record, and are not checked."""


class GrownTooFar(Exception):
    """Ends a unit because the worker's memory has grown too much."""

    def __init__(self, grown_bytes: int) -> None:
        super().__init__(grown_bytes)
        self.grown_bytes = grown_bytes


class Growth:
    """Measures memory in use. Memory that the allocator keeps for later is released first."""

    def __init__(self, growth_bytes: int, batch_bytes: int) -> None:
        self._growth_bytes = growth_bytes
        self._batch_bytes = batch_bytes
        self._done_bytes = 0
        self._process = psutil.Process()
        self._ready_bytes = self._alive_bytes()

    def check(self, done_bytes: int) -> None:
        """Raise GrownTooFar after a batch if the unit cannot continue in this process.

        `done_bytes` counts the bytes of the unit so far.
        """
        long = done_bytes - self._done_bytes > LONG_BATCHES * self._batch_bytes
        self._done_bytes = done_bytes
        if not long and (grown_bytes := self._beyond(WITHIN_UNIT * self._growth_bytes)):
            raise GrownTooFar(grown_bytes)

    def is_full(self) -> bool:
        """Return, after a unit, whether a fresh process should replace this one."""
        self._done_bytes = 0
        return self._beyond(self._growth_bytes) > 0

    def _beyond(self, limit_bytes: int) -> int:
        """Return the growth of this process in bytes if it is above the limit, else 0."""
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
    """Return free pages to the system. Only glibc has a call for this."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
