"""Turn signals that stop a run into an exception, so that everything is closed properly."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tokenmill.errors import Interrupted

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Raise Interrupted at the first signal; the second signal ends the process at once.

    Libraries can turn Interrupted into another error: C extensions do while they are imported.
    Therefore any error after a signal is raised as Interrupted.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        for each in before:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    # Under nohup, SIGHUP is ignored when we start; keep it that way.
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    numbers = [n for n in STOPPING if not (n == signal.SIGHUP and ignored)]
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            signal.signal(number, stop)
        yield
    except Interrupted:
        raise
    except BaseException as error:
        if received:
            raise Interrupted(received[0]) from error
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
