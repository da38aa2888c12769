"""Retries of requests to a server that is busy or does not answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tokenmill.core.errors import StorageError

LOGGER = logging.getLogger(__name__)

MAX_FAILURES = 8
MAX_FIRST_FAILURES = 4
"""Fewer retries at the start, when a user is waiting and no work can be lost."""
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
MAX_ASKED_SECONDS = 900.0
"""The longest pause that a server may request; for a longer one, the request fails."""
CHECK_SECONDS = 0.2

Check = Callable[[], None]
"""Called during a pause; raises to stop the work."""


class Patience:
    """Pauses between the attempts at one request, each twice as long as the last."""

    def __init__(self, where: str, check: Check, max_failures: int = MAX_FAILURES) -> None:
        self.where = where
        self._check = check
        self._max_failures = max_failures
        self._num_failures = 0

    def renew(self) -> None:
        """Reset the count of failures after data has arrived."""
        self._num_failures = 0

    def wait(self, why: str, asked_seconds: float = 0.0) -> None:
        """Log a failure and pause, longer each time, or as long as the server asks.

        Raises:
            StorageError: there were too many failures, or the server asks for too much.
        """
        self._num_failures += 1
        own_seconds = FIRST_PAUSE_SECONDS * 2 ** (self._num_failures - 1)
        seconds = max(min(own_seconds, MAX_PAUSE_SECONDS), asked_seconds)
        if self._num_failures > self._max_failures or seconds > MAX_ASKED_SECONDS:
            asks = f"; the Hub asks to wait {asked_seconds:.0f} s" if asked_seconds > 0 else ""
            raise StorageError(
                "the Hub did not answer",
                where=self.where,
                why=f"{why}{asks}",
                hint="run the same command again later; it resumes where it stopped",
            )
        LOGGER.warning("%s: %s; retrying in %.0f s", self.where, why, seconds)
        pause(seconds, self._check)


def pause(seconds: float, check: Check) -> None:
    """Sleep, and call `check` repeatedly."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, CHECK_SECONDS))
