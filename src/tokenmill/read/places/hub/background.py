"""Threads that nobody waits for: an interrupt ends the process while one waits for a server.

The interpreter joins the threads of a `ThreadPoolExecutor` before it exits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def in_background(work: Callable[[], Result], name: str) -> Future[Result]:
    """Start `work` in a daemon thread of its own."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # nobody can take it back

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
