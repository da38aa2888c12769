"""Prepare batches in a background thread, while the trainer is busy with the last one.

The thread works on a twin of the batches, with its own readers, file maps and position. So the
trainer's batches stay at the trainer's step, whatever the thread has prepared, and their state is
exact. A prepared batch is used only if it is the next one. If a state was loaded or a curriculum
changed in the meantime, a new thread starts over from there.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from tokenmill.load.batches import Batches, Place
from tokenmill.load.columns import Batch

PREFETCH = 2
"""Default number of batches to prepare in advance."""
JOIN_SECONDS = 1.0
"""How long the end of a loop waits for the batch that its thread is preparing."""
FORK_SECONDS = 10.0
"""How long a fork waits for the batches that threads are preparing."""


@dataclass(slots=True)
class Made:
    """The result of a step: a batch, an error, or neither after the last step."""

    place: Place
    batch: Batch | None = None
    error: BaseException | None = None
    standing: object = None
    """State of the thread's schedule after the step."""
    counts: Counter[str] = field(default_factory=Counter)
    """What the thread counted in this batch."""

    def hand_over(self) -> Batch:
        """Return the batch, and keep no reference to it.

        Freeing a batch here could let the thread take the GIL while it prepares another one, and
        the caller would wait for that.
        """
        batch, self.batch = self.batch, None
        assert batch is not None
        return batch


class _Line:
    """The queues between a thread and the trainer.

    A fork may happen at any time, so these are queues with a `put` that never waits.
    """

    def __init__(self, count: int) -> None:
        self.made: SimpleQueue[Made] = SimpleQueue()
        self.orders: SimpleQueue[bool] = SimpleQueue()
        """True asks for one more batch; False ends the thread."""
        self.is_closed = False
        self.making = threading.Lock()
        """Held while a batch is being prepared, so that a fork waits."""
        for _ in range(count):
            self.orders.put(True)

    def close(self) -> None:
        """Let the thread end after its current batch."""
        self.is_closed = True
        self.orders.put(False)


class _Maker:
    """A thread that prepares batches from the next step on, at most `count` in advance."""

    def __init__(self, batches: Batches, count: int, finish: Callable[[Batch], Batch]) -> None:
        _watch_forks()
        self.pid = os.getpid()
        self._line = _Line(count)
        arguments = batches.twin(), finish, self._line
        self._thread = threading.Thread(
            target=_make, args=arguments, name="tokenmill-batches", daemon=True
        )
        self._end = weakref.finalize(self, _end, self._line, self._thread, self.pid)
        self._thread.start()

    def take(self) -> Made:
        """Return the next result, and ask the thread for another one."""
        made = self._line.made.get()
        self._line.orders.put(True)
        return made

    def end(self) -> None:
        """End the thread, without waiting long for its current batch."""
        self._end()


def prefetched(batches: Batches, count: int, finish: Callable[[Batch], Batch]) -> Iterator[Batch]:
    """Yield batches from the next step on, while a thread prepares up to `count` in advance.

    The thread ends with the iterator. If it fails, the error is raised here in place of its batch.

    Args:
        batches: the batches to iterate over. Their `step` advances with each yielded batch.
        count: number of batches to prepare in advance, at least 1.
        finish: called on each batch in the thread.

    Raises:
        UserError: all batches have been returned already.
    """
    batches.begin_pass()
    maker: _Maker | None = None
    try:
        while True:
            if maker is None or maker.pid != os.getpid():
                maker = _Maker(batches, count, finish)
            made = maker.take()
            if made.place != batches.place:
                maker.end()
                maker = None
                continue
            if made.error is not None:
                raise made.error
            if made.batch is None:
                return
            batches.give_out(made.standing, made.counts)
            yield made.hand_over()
    finally:
        if maker is not None:
            maker.end()


def _make(twin: Batches, finish: Callable[[Batch], Batch], line: _Line) -> None:
    """Prepare batches on request, until the last one or the first error."""
    _lines.add(line)
    try:
        while line.orders.get() and not line.is_closed:
            with line.making:
                made = _made(twin, finish)
            is_end = made.batch is None
            line.made.put(made)
            if is_end:
                return
    finally:
        _lines.discard(line)


def _made(twin: Batches, finish: Callable[[Batch], Batch]) -> Made:
    place = twin.place
    try:
        batch = twin.advance()
        if batch is None:
            return Made(place)
        counts = twin.meter.take_counts()
        return Made(place, finish(batch), None, twin.schedule.standing(), counts)
    except BaseException as error:
        return Made(place, error=error)


def _end(line: _Line, thread: threading.Thread, pid: int) -> None:
    """End a thread of this process, and wait briefly for it."""
    if pid != os.getpid():  # the thread belongs to the process that this one was forked from
        return
    line.close()
    if thread is not threading.current_thread():
        thread.join(JOIN_SECONDS)


# A process forked while a thread prepares a batch would inherit locks that nobody releases, such as
# those of an import or of the compiler. So threads pause while the process forks.

_lines: set[_Line] = set()
"""The running threads."""
_held: list[_Line] = []
"""The threads that are paused for a fork."""


@functools.cache
def _watch_forks() -> None:
    os.register_at_fork(before=_rest, after_in_parent=_resume, after_in_child=_forget)


def _rest() -> None:
    _held.extend(line for line in list(_lines) if line.making.acquire(timeout=FORK_SECONDS))


def _resume() -> None:
    while _held:
        _held.pop().making.release()


def _forget() -> None:
    _held.clear()
    _lines.clear()
