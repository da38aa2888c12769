"""Signals that stop a run become an exception, so that everything is closed on the way out."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tokenmill.errors import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Raise Interrupted at the first signal; a second one ends the process at once."""

    def stop(number: int, _: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
