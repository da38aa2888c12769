"""Results are audited and get their receipts in threads: the reference takes its time, so do disks
and buckets, and meanwhile the main thread has workers to feed.

A result counts once its receipt is stored, so it makes no difference which of several is first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from tokenmill.cloud.loop import check_waits
from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import audit
from tokenmill.run.commit.receipts import write_receipt
from tokenmill.run.units.assignment import Outcome, Receipt
from tokenmill.store.objects.object_store import ObjectStore

NUM_THREADS = 8
"""Receipts that are stored at once: what several threads flush at once, a disk writes at once."""
MOST_WAITING = 64
"""Results that may wait for them; while there are more, no unit is started."""
END_SECONDS = 1.0
"""How long the end of a build waits for the requests of receipts."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A result that counts."""

    outcome: Outcome
    receipt: Receipt
    """The one that counts: that of the agent which was first."""
    audit_seconds: float


class Committer:
    """Audits results, and stores their receipts."""

    def __init__(self, store: ObjectStore, reference: Engine, name: str) -> None:
        self._store, self._reference, self._name = store, reference, name
        self._audits = threading.Lock()

    def commit(self, outcome: Outcome, check: Callable[[], None] = lambda: None) -> Committed:
        """Let a result count; `check`, which may raise, is called before and during the audit.

        Raises:
            EngineError: the reference disagrees on a document.
            InternalError: another agent has done the unit, with another result.
        """
        seconds = 0.0
        if outcome.audit_texts:
            with self._audits:  # a reference is for one thread at a time
                begun = time.perf_counter()
                texts, ids = outcome.audit_texts, outcome.audit_ids
                audit(self._name, texts, ids, self._reference, check)
                seconds = time.perf_counter() - begun
        return Committed(outcome, write_receipt(self._store, outcome.receipt), seconds)


class CommitterThreads:
    """A committer in threads."""

    def __init__(self, committer: Committer, wake: Callable[[], None]) -> None:
        self._committer, self._wake = committer, wake
        self._threads = ThreadPoolExecutor(
            NUM_THREADS, "commit", initializer=check_waits, initargs=(self._check_request,)
        )
        self._closed_at: float | None = None
        self._done: SimpleQueue[Future[Committed]] = SimpleQueue()
        self._num_waiting = 0

    @property
    def has_room(self) -> bool:
        """Whether few enough results wait."""
        return self._num_waiting < MOST_WAITING

    def submit(self, outcome: Outcome) -> None:
        """Have a result committed."""
        self._num_waiting += 1
        future = self._threads.submit(self._committer.commit, outcome, self._check)
        future.add_done_callback(self._tell)

    def done(self) -> Iterator[Committed]:
        """Results that count by now, each once; raises as `Committer.commit` does."""
        while True:
            try:
                found = self._done.get_nowait()
            except Empty:
                return
            self._num_waiting -= 1
            yield found.result()

    def close(self) -> None:
        """Wait a little for what is being committed; the rest is left to a resume.

        A signal must end the build soon: audits end, and requests that a store does not answer.
        """
        self._closed_at = time.monotonic()
        self._threads.shutdown(cancel_futures=True)

    def _check(self) -> None:
        if self._closed_at is not None:
            raise CancelledError("the build ends")

    def _check_request(self) -> None:
        if self._closed_at is not None and time.monotonic() > self._closed_at + END_SECONDS:
            self._check()

    def _tell(self, future: Future[Committed]) -> None:
        self._done.put(future)
        self._wake()
