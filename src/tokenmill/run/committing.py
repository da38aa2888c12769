"""Audit results and store their receipts.

The reference tokenizer, disks and buckets are slow, and the main thread must keep the workers busy.
A result counts once its receipt is stored, so the order of commits does not matter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import audit
from tokenmill.run.journal.receipts import write_receipt
from tokenmill.run.messages import Outcome, Receipt
from tokenmill.store.cloud.loop import check_waits
from tokenmill.store.objects.object_store import ObjectStore

NUM_THREADS = 8
"""Receipts stored at the same time. A disk combines flushes that arrive together."""
MOST_WAITING = 64
"""Most results that may wait for their receipts before the session stops starting units."""
END_SECONDS = 1.0
"""How long the end of a build waits for requests that store receipts."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A result with a stored receipt."""

    outcome: Outcome
    receipt: Receipt
    """The stored receipt. If several agents ran the unit, the first one's."""
    audit_seconds: float


class Committer:
    """Audits results and stores their receipts, in this thread or in threads of its own."""

    def __init__(self, store: ObjectStore, reference: Engine, name: str) -> None:
        self._store, self._reference, self._name = store, reference, name
        self._audits = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._wake: Callable[[], None] = lambda: None
        self._closed_at: float | None = None
        self._done: SimpleQueue[Future[Committed]] = SimpleQueue()
        self._num_waiting = 0

    def start_threads(self, wake: Callable[[], None]) -> None:
        """Commit further results in threads, which call `wake` after each."""
        self._wake = wake
        self._threads = ThreadPoolExecutor(
            NUM_THREADS, "commit", initializer=check_waits, initargs=(self._check_request,)
        )

    @property
    def has_room(self) -> bool:
        """Whether another result can be committed without overloading the threads."""
        return self._num_waiting < MOST_WAITING

    def commit(self, outcome: Outcome) -> None:
        """Audit a result and store its receipt; `done` then yields it."""
        self._num_waiting += 1
        if self._threads is not None:
            self._threads.submit(self._commit, outcome).add_done_callback(self._tell)
            return
        future: Future[Committed] = Future()
        future.set_result(self._commit(outcome))
        self._done.put(future)

    def done(self) -> Iterator[Committed]:
        """Yield results committed since the last call.

        Raises:
            EngineError: the reference disagrees on a document.
            InternalError: another agent ran the same unit with a different result.
        """
        while True:
            try:
                found = self._done.get_nowait()
            except Empty:
                return
            self._num_waiting -= 1
            yield found.result()

    def close(self) -> None:
        """Wait briefly for running commits. A resumed build repeats the rest.

        A signal must end the build soon, so audits end at once, and so do requests that the
        store does not answer within `END_SECONDS`.
        """
        self._closed_at = time.monotonic()
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def _commit(self, outcome: Outcome) -> Committed:
        seconds = 0.0
        if outcome.audit_texts:
            with self._audits:  # references are not thread-safe
                begun = time.perf_counter()
                texts, ids = outcome.audit_texts, outcome.audit_ids
                audit(self._name, texts, ids, self._reference, self._check)
                seconds = time.perf_counter() - begun
        return Committed(outcome, write_receipt(self._store, outcome.receipt), seconds)

    def _check(self) -> None:
        if self._closed_at is not None:
            raise CancelledError("the build is ending")

    def _check_request(self) -> None:
        if self._closed_at is not None and time.monotonic() > self._closed_at + END_SECONDS:
            self._check()

    def _tell(self, future: Future[Committed]) -> None:
        self._done.put(future)
        self._wake()
