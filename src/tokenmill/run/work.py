"""The work queue of an agent: items that it claims, and units of streams as they are read."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenmill.core.errors import TokenmillError
from tokenmill.read.units import Stream, Unit, feed_stream, find_units, stream_of
from tokenmill.run.journal.claims import Claims
from tokenmill.run.journal.ledger import Ledger
from tokenmill.run.task import Task
from tokenmill.run.workspace import Workspace

REFRESH_SECONDS = 5.0
"""How often an idle agent checks what other agents have finished, or as often as it looks at them,
if that is more often."""


@dataclass(slots=True)
class Work:
    """A unit that waits or runs."""

    unit: Unit
    spool: Path | None = None
    crashes: int = 0
    is_written: bool = False
    """Whether only its files must still be flushed."""


class _Stopped(Exception):
    """Ends a feeder thread."""


@dataclass(slots=True)
class WorkQueue:
    """Hands out units. Feeder threads keep spool files of streams ahead of the workers."""

    task: Task[Any]
    workspace: Workspace
    ledger: Ledger
    items: Sequence[Unit | Stream]
    """The units, and the streams that are not yet cut into units."""
    wanted: Callable[[str], bool]
    """Whether a unit still has to run."""
    claims: Claims | None = None
    """None if this agent runs all items."""
    notify: Callable[[], None] = lambda: None
    failures: list[tuple[int, Exception]] = field(default_factory=list)
    """The sources of streams that could not be read."""
    _items: dict[str, Unit | Stream] = field(init=False)
    _our_units: deque[str] = field(default_factory=deque)
    """Units that need no claim."""
    _our_streams: deque[str] = field(default_factory=deque)
    _places: dict[str, int] = field(init=False)
    """The position of each item in the order of the inputs."""
    _ready: deque[Work] = field(default_factory=deque)
    _again: deque[Work] = field(default_factory=deque)
    _feeders: list[threading.Thread] = field(default_factory=list)
    _max_feeders: int = field(init=False)
    _room: threading.Semaphore = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: bool = False
    _next_refresh: float = 0.0
    _next_look: float = 0.0

    def __post_init__(self) -> None:
        resources = self.task.resources
        self._max_feeders = (resources.num_workers + 1) // 2
        self._room = threading.Semaphore(resources.prefetch + self._max_feeders)
        self._items = {item.key: item for item in self.items}
        self._places = {key: place for place, key in enumerate(self._items)}
        ours: Collection[str] = self._items if self.claims is None else self.claims.mine
        for key, item in self._items.items():
            if key in ours:
                (self._our_streams if isinstance(item, Stream) else self._our_units).append(key)

    def take(self) -> Work | None:
        """Return the next unit if one is ready."""
        with self._lock:
            if self._again:
                return self._again.popleft()
            work = self._ready.popleft() if self._ready and not self._stopping else None
        if work is None:
            return self._claim()
        if work.spool:
            self._room.release()
        return work

    def put_back(self, work: Work) -> None:
        """Queue a unit again."""
        with self._lock:
            self._again.append(work)

    def release(self, work: Work) -> None:
        """Remove the spool file of a unit that has ended."""
        if work.spool:
            work.spool.unlink(missing_ok=True)

    def finish(self, work: Work) -> None:
        """Record that a unit has its receipt, and with it perhaps its whole item."""
        self.release(work)
        if self.claims is not None:
            item = self._item_of(work.unit)
            if self.ledger.is_finished(item):
                self.claims.finished(item.key)

    def give_up(self, unit: Unit, error: TokenmillError) -> bool:
        """Leave an item to other agents after its unit failed. False if there are none."""
        if self.claims is None or self.claims.alone:
            return False
        self.claims.failed(self._item_of(unit).key, error)
        return True

    def stop(self) -> None:
        """Hand out no more new units."""
        with self._lock:
            self._stopping = True
            self._ready.clear()

    def is_exhausted(self, *, waiting: bool) -> bool:
        """Whether no further unit will come.

        If not `waiting`, also True if only units that other agents hold could still come.
        """
        with self._lock:
            if self._ready or self._again or self._num_feeding:
                return False
            if self._stopping:
                return True
        ours = self._our_units or self._our_streams
        if ours or self.claims is None:
            return not ours
        return self.claims.exhausted if waiting and not self.failures else self.claims.idle

    @property
    def num_awaited(self) -> int:
        """The number of items that other agents hold, as far as this agent knows."""
        return 0 if self.claims is None else len(self.claims.waiting_for)

    def close(self) -> None:
        """Stop the feeder threads and wait for them."""
        self.stop()
        for thread in self._feeders:
            thread.join()

    @property
    def _num_feeding(self) -> int:
        self._feeders = [thread for thread in self._feeders if thread.is_alive()]
        return len(self._feeders)

    def _item_of(self, unit: Unit) -> Unit | Stream:
        return self._items.get(unit.key) or self._items[stream_of(unit.key)]

    def _claim(self) -> Work | None:
        """Claim the next item and return its unit. Starts feeders for streams on the way."""
        while not self._stopping and (name := self._next_item()):
            item = self._items.get(name)
            if isinstance(item, Stream):
                self._start_feeder(item)
            elif item is not None and self.wanted(item.key):
                return Work(item)
            elif self.claims is not None:
                self.claims.finished(name)  # finished before the claim was seen
        return None

    def _next_item(self) -> str | None:
        feeds = self._num_feeding < self._max_feeders
        ready = [names for names in (self._our_units, feeds and self._our_streams) if names]
        if ready:
            return min(ready, key=lambda names: self._places[names[0]]).popleft()
        if self.claims is None or self._is_over():
            return None
        taken = self.claims.take(
            lambda name: feeds or not isinstance(self._items.get(name), Stream)
        )
        if taken is None and time.monotonic() >= self._next_refresh:
            self._refresh(self.claims)
        return taken

    def _is_over(self) -> bool:
        """Whether nothing is left to do, checked every `REFRESH_SECONDS`.

        Without this check, an agent that was taken for dead would run everything again.
        """
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + REFRESH_SECONDS
            if self.workspace.is_complete():
                self.stop()
        return self._stopping

    def _refresh(self, claims: Claims) -> None:
        """Read what other agents have finished, and which claims can be taken over."""
        self.ledger.refresh()
        claims.refresh({key for key, item in self._items.items() if self.ledger.is_finished(item)})
        self._next_refresh = time.monotonic() + min(REFRESH_SECONDS, claims.look_seconds)

    def _start_feeder(self, stream: Stream) -> None:
        def feed() -> None:
            try:
                self._feed_stream(stream)
            except _Stopped:
                pass
            except Exception as error:
                self.failures.append((stream.source, error))
            self.notify()

        self._feeders.append(threading.Thread(target=feed, daemon=True))
        self._feeders[-1].start()

    def _feed_stream(self, stream: Stream) -> None:
        source, fields = self.task.sources[stream.source], self.task.fields
        units = find_units(stream, source, fields)
        if units is not None:
            for unit in units:
                if self.wanted(unit.key):
                    self._offer(Work(unit))
            self.ledger.end_stream(stream.source, len(units))
            return
        num_parts, has_room = 0, False

        def wanted(key: str) -> bool:
            nonlocal has_room
            self._check()
            has_room = False
            while self.wanted(key) and not has_room:
                has_room = self._room.acquire(timeout=0.1)
                self._check()
            return has_room

        try:
            scratch = self.workspace.scratch
            for unit, spool in feed_stream(stream, source, fields, scratch, wanted, self._check):
                num_parts, has_room = num_parts + 1, False
                if spool:
                    self._offer(Work(unit, spool))
        finally:
            if has_room:  # its part was never finished
                self._room.release()
        self.ledger.end_stream(stream.source, num_parts)

    def _offer(self, work: Work) -> None:
        with self._lock:
            if self._stopping:  # no one would take the unit
                self.release(work)
                raise _Stopped
            self._ready.append(work)
        self.notify()

    def _check(self) -> None:
        """End a feeder, which may wait for a server, after the queue has stopped."""
        if self._stopping:
            raise _Stopped
