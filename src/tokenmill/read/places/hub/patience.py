"""How long a server that is busy, or does not answer, is waited for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tokenmill.errors import StorageError

LOGGER = logging.getLogger(__name__)

MAX_FAILURES = 8
MAX_FIRST_FAILURES = 4
"""At the start somebody waits, and nothing is lost yet."""
FIRST_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
MAX_ASKED_SECONDS = 900.0
"""A server may ask for a pause of this length. One that asks for more is not waited for."""
CHECK_SECONDS = 0.2

Check = Callable[[], None]
"""Called while time passes; raises where the work is to end."""


class Patience:
    """Pauses between the tries at one request, each twice as long as the one before."""

    def __init__(self, where: str, check: Check, max_failures: int = MAX_FAILURES) -> None:
        self.where = where
        self._check = check
        self._max_failures = max_failures
        self._num_failures = 0

    def renew(self) -> None:
        """Some data has come: the next failure is the first one."""
        self._num_failures = 0

    def wait(self, why: str, asked_seconds: float = 0.0) -> None:
        """Announce a failure, and pause longer each time, or as long as the server asks for.

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
    """Let time pass, but not past the end of the work."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, CHECK_SECONDS))
