"""One thread per process that runs all requests, so that signals can interrupt waiting callers.

Blocking calls of the library cannot be interrupted, and a thread that returns from one while the
interpreter exits crashes the process.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from tokenmill.core.errors import StorageError

CHECK_SECONDS = 0.2
END_SECONDS = 5.0
LAST_WORD_SECONDS = 0.3
"""Time for the library's threads to notice a cancellation before the interpreter exits."""

Result = TypeVar("Result")


class RequestLoop:
    """An event loop in its own thread."""

    def __init__(self) -> None:
        import asyncio  # takes 40 ms, and `wait` does not need it

        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cloud", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    def begin(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start work; cancelling the future cancels the work."""
        import asyncio

        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end(self) -> None:
        """Cancel running work, because an answer must not arrive after the interpreter exits."""
        if os.getpid() != self.pid:
            return
        try:
            self.begin(_cancel_all()).result(END_SECONDS)
        except TimeoutError:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(END_SECONDS)


async def _cancel_all() -> None:
    import asyncio

    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if tasks:
        await asyncio.sleep(LAST_WORD_SECONDS)


_loop: RequestLoop | None = None
_lock = threading.Lock()
_of_thread = threading.local()


def request_loop() -> RequestLoop:
    """Return the loop of this process, which the first call starts.

    Raises:
        StorageError: the process was forked after the loop was started; the library would hang.
    """
    global _loop
    with _lock:
        if _loop is None:
            _loop = RequestLoop()
        if _loop.pid != os.getpid():
            raise StorageError(
                "object stores cannot be used in a forked process",
                why="the parent process used them before the fork, and threads do not survive it",
                hint="start processes with the spawn method, or open the dataset only in the child",
            )
        return _loop


def in_background(work: Callable[[], Result], name: str) -> Future[Result]:
    """Start `work` in a new daemon thread, so that an interrupt can end the process meanwhile.

    Before it exits, the interpreter would join the threads of a `ThreadPoolExecutor`.
    """
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()  # it cannot be cancelled

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def check_waits(check: Callable[[], None]) -> None:
    """Call `check`, which may raise, repeatedly while this thread waits for requests.

    Signals only interrupt the main thread, so other threads need this.
    """
    _of_thread.check = check


def wait(future: Future[Result], check: Callable[[], None] | None = None) -> Result:
    """Wait for a result, and repeatedly call `check`, which may raise.

    The default is the function given to `check_waits`.
    """
    look: Callable[[], None] = getattr(_of_thread, "check", lambda: None)
    look = check or look
    try:
        while True:
            try:
                return future.result(CHECK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                look()
    except BaseException:
        future.cancel()
        raise
