"""Batches that a thread makes ahead, while the trainer's own thread is busy with the last one.

The thread has a twin of the batches: readers, maps and a place in the order of its own. So the
batches that the trainer holds stand where the trainer is, whatever the thread has made, and their
state is exact. A batch counts as given out when it is taken, and only if it is the one that comes
next: after a state was loaded, or a curriculum was changed, another thread makes the batches anew.
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
"""Batches that are made ahead unless another number is asked for."""
JOIN_SECONDS = 1.0
"""How long the end of a loop waits for the batch that its thread is making."""
FORK_SECONDS = 10.0
"""How long a fork waits for the batches that threads are making."""


@dataclass(slots=True)
class Made:
    """What became of a step: a batch, an error, or neither after the last step."""

    place: Place
    batch: Batch | None = None
    error: BaseException | None = None
    standing: object = None
    """Of the schedule after the step."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Of fill-in-the-middle in this batch."""

    def hand_over(self) -> Batch:
        """The batch, which nobody but the caller keeps then.

        To free one lets the thread run, which has the lock of Python while it makes another: who
        asks for a batch must not wait for that.
        """
        batch, self.batch = self.batch, None
        assert batch is not None
        return batch


class _Line:
    """What thread and trainer share. A fork may happen at any time, so the queues are those whose
    `put` never waits.
    """

    def __init__(self, count: int) -> None:
        self.made: SimpleQueue[Made] = SimpleQueue()
        self.orders: SimpleQueue[bool] = SimpleQueue()
        """True asks for a batch more; the thread ends with the first False."""
        self.is_closed = False
        self.making = threading.Lock()
        """Held while a batch is being made: nothing forks then."""
        for _ in range(count):
            self.orders.put(True)

    def close(self) -> None:
        """Let the thread end, after the batch that it is making."""
        self.is_closed = True
        self.orders.put(False)


class _Maker:
    """A thread that makes batches from where they stand, at most `count` of them ahead."""

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
        """The next of the batches; the thread is asked for another one."""
        made = self._line.made.get()
        self._line.orders.put(True)
        return made

    def end(self) -> None:
        """End the thread; where it is making a batch, it is not waited for for long."""
        self._end()


def prefetched(batches: Batches, count: int, finish: Callable[[Batch], Batch]) -> Iterator[Batch]:
    """Batches from the next step on, of which a thread makes up to `count` ahead.

    The thread ends with the iterator. Its errors are raised here, at the batch that they belong to.

    Args:
        batches: their `step` is that of the batch that is given out next.
        count: at least 1.
        finish: what the thread does with each batch.

    Raises:
        UserError: all have been given out.
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
            batches.give_out(made.standing, made.outcomes)
            yield made.hand_over()
    finally:
        if maker is not None:
            maker.end()


def _make(twin: Batches, finish: Callable[[Batch], Batch], line: _Line) -> None:
    """Make batches as they are asked for, up to the last one or the first error."""
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
        return Made(place, finish(batch), None, twin.schedule.standing(), twin.take_outcomes())
    except BaseException as error:
        return Made(place, error=error)


def _end(line: _Line, thread: threading.Thread, pid: int) -> None:
    """End a thread of this process, and wait for it a little."""
    if pid != os.getpid():  # that of another process, which this one was forked from
        return
    line.close()
    if thread is not threading.current_thread():
        thread.join(JOIN_SECONDS)


# A process that is forked while a thread makes a batch would inherit locks that nobody releases,
# such as those of an import or of the compiler. So threads rest while the process forks.

_lines: set[_Line] = set()
"""Of the threads that run."""
_held: list[_Line] = []
"""Whose threads rest now."""


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
