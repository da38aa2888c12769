"""Daemon threads, so that an interrupt can end the process while a thread waits for a server.

Before it exits, the interpreter would join the threads of a `ThreadPoolExecutor`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(work: Callable[[], Result], name: str) -> Future[Result]:
    """Start `work` in a new daemon thread."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
