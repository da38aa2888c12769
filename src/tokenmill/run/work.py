"""Work in the order of the inputs: units as planned, and units of streams as they are fed."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.read.documents import SpooledPart
from tokenmill.read.feed import feed_stream
from tokenmill.read.fields import Fields
from tokenmill.read.sources import Source
from tokenmill.read.units import Stream, Unit, find_units
from tokenmill.run.commit.receipts import write_stream_end
from tokenmill.run.commit.workspace import Workspace


@dataclass(slots=True)
class Work:
    """A unit that is to be run, or is running."""

    unit: Unit
    spool: SpooledPart | None = None
    crashes: int = 0


@dataclass(slots=True)
class Inputs:
    """What there is to read, before anything is known of streams."""

    sources: Sequence[Source]
    fields: Fields
    items: list[Unit | Stream]


class _Stopped(Exception):
    """Unwinds a feeder."""


@dataclass(slots=True)
class WorkQueue:
    """Hands out work; feeder threads keep at most `prefetch` spool files beyond those in use."""

    inputs: Inputs
    workspace: Workspace
    wanted: Callable[[str], bool]
    skip_streams: frozenset[int]
    num_feeders: int
    prefetch: int
    notify: Callable[[], None] = lambda: None
    failures: list[tuple[int, Exception]] = field(default_factory=list)
    _ready: deque[Work] = field(default_factory=deque)
    _again: deque[Work] = field(default_factory=deque)
    _streams: deque[Stream] = field(default_factory=deque)
    _feeding: int = 0
    _room: threading.Semaphore = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: bool = False
    _threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._room = threading.Semaphore(self.prefetch + self.num_feeders)
        for item in self.inputs.items:
            if isinstance(item, Stream):
                if item.source not in self.skip_streams:
                    self._streams.append(item)
            elif self.wanted(item.key):
                self._ready.append(Work(item))
        self._feeding = min(self.num_feeders, len(self._streams))
        for _ in range(self._feeding):
            self._threads.append(threading.Thread(target=self._feed, daemon=True))
        for thread in self._threads:
            thread.start()

    def take(self) -> Work | None:
        """The next unit, if one is ready."""
        with self._lock:
            if self._again:
                return self._again.popleft()
            work = self._ready.popleft() if self._ready and not self._stopping else None
        if work and work.spool:
            self._room.release()
        return work

    def put_back(self, work: Work) -> None:
        """Hand a unit out again."""
        with self._lock:
            self._again.append(work)

    def release(self, work: Work) -> None:
        """A unit has ended: its spool file may go."""
        if work.spool:
            work.spool.path.unlink(missing_ok=True)

    def stop(self) -> None:
        """Hand out nothing new."""
        with self._lock:
            self._stopping = True
            self._ready.clear()

    @property
    def exhausted(self) -> bool:
        """Whether no further unit will come."""
        with self._lock:
            return not (self._ready or self._again or self._feeding)

    def upcoming(self) -> list[Unit]:
        """The next `prefetch` units that are not fed, for reading ahead."""
        with self._lock:
            ready = itertools.islice(self._ready, self.prefetch)
            return [work.unit for work in ready if not work.spool]

    def close(self) -> None:
        """Stop, and wait for the feeders."""
        self.stop()
        for thread in self._threads:
            thread.join()

    def _feed(self) -> None:
        while True:
            with self._lock:
                if not self._streams or self._stopping:
                    self._feeding -= 1
                    break
                stream = self._streams.popleft()
            try:
                self._feed_stream(stream)
            except _Stopped:
                continue
            except Exception as error:
                self.failures.append((stream.source, error))
        self.notify()

    def _feed_stream(self, stream: Stream) -> None:
        source = self.inputs.sources[stream.source]
        units = find_units(stream, source, self.inputs.fields)
        if units is not None:
            for unit in units:
                if self.wanted(unit.key):
                    self._offer(Work(unit))
            write_stream_end(self.workspace.receipts, stream.source, len(units))
            return
        folder: Path = self.workspace.attempts
        num_parts, has_room = 0, False

        def wanted(key: str) -> bool:
            nonlocal has_room
            has_room = self._wait_for_room(key)
            return has_room

        try:
            fed = feed_stream(stream, source, self.inputs.fields, folder, wanted, self._check)
            for unit, spool in fed:
                num_parts, has_room = num_parts + 1, False
                if spool:
                    self._offer(Work(unit, spool))
        finally:
            if has_room:  # for a part that was never finished
                self._room.release()
        write_stream_end(self.workspace.receipts, stream.source, num_parts)

    def _offer(self, work: Work) -> None:
        with self._lock:
            if self._stopping:  # nobody would take it
                self.release(work)
                raise _Stopped
            self._ready.append(work)
        self.notify()

    def _check(self) -> None:
        """Unwind a feeder that waits for a server, when nothing is to come any more."""
        if self._stopping:
            raise _Stopped

    def _wait_for_room(self, key: str) -> bool:
        if self._stopping:
            raise _Stopped
        if not self.wanted(key):
            return False
        while not self._room.acquire(timeout=0.1):
            if self._stopping:
                raise _Stopped
        return True
