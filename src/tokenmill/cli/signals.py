"""Turn signals that stop a run into an exception, so that everything is closed properly."""

from __future__ import annotations

# If a signal interrupts the import of datetime within that of msgspec, msgspec drops the error and
# crashes later. Here no handler is installed yet.
import datetime  # noqa: F401
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from tokenmill.core.errors import Interrupted

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_SECONDS = 0.01
"""Time for Python to leave the callback that dropped a signal, before the signal is sent again."""


def end_without_traceback() -> None:
    """Let SIGINT end the process silently outside of `signals_as_errors`, as SIGTERM does.

    Python would print a traceback or, while it exits, "Exception ignored".
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def signals_as_errors() -> Iterator[None]:
    """Raise Interrupted at the first signal; the second signal ends the process at once.

    Libraries can turn Interrupted into another error: C extensions do while they are imported.
    Therefore any error after a signal is raised as Interrupted.
    """
    handlers = _Handlers()
    try:
        handlers.install()
        yield
    except Interrupted:
        raise
    except BaseException as error:
        if handlers.received:
            raise Interrupted(handlers.received[0]) from error
        raise
    finally:
        handlers.remove()


class _Handlers:
    """Handlers that raise Interrupted, and raise it again if Python drops it.

    Python prints and drops an error in a finalizer or in a callback of a weak reference. Every
    import calls one.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        # Under nohup, SIGHUP is ignored when we start; keep it that way.
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        numbers = [n for n in STOPPING if not (n == signal.SIGHUP and ignored)]
        self._before = {number: signal.getsignal(number) for number in numbers}
        self._hook_before = sys.unraisablehook
        self._timers: list[threading.Timer] = []

    def install(self) -> None:
        sys.unraisablehook = self._dropped
        for number in self._before:
            signal.signal(number, self._stop)

    def remove(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook_before

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.received.append(number)
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        raise Interrupted(number)

    def _dropped(self, unraisable: UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Interrupted):
            self._hook_before(unraisable)
            return
        for number in self._before:
            signal.signal(number, self._stop)
        # Only a signal to the main thread interrupts what it waits for.
        target = (threading.main_thread().ident, self.received[-1])
        timer = threading.Timer(AGAIN_SECONDS, signal.pthread_kill, target)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()
