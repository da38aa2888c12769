"""Results are audited and get their receipts in threads, and none counts without both."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

import pytest
from memory_store import MemoryStore

from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.engine import Engine
from tokenmill.run.executor import Outcome, Receipt, receipt_name
from tokenmill.run.journal.ledger import finished_keys
from tokenmill.run.session import MOST_WAITING, Committed, Committer
from tokenmill.store.cloud.loop import request_loop, wait


class Lengths:
    """A reference: the only id of a text is its length."""

    name = "reference"

    def encode(self, texts: list[str]) -> TokenBatch:
        return batch_of([[len(text)] for text in texts])


class SlowReference(Lengths):
    """Each call takes until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.num_calls = 0

    def encode(self, texts: list[str]) -> TokenBatch:
        self.num_calls += 1
        assert self.let_go.wait(60)
        return super().encode(texts)


class DeadStore(MemoryStore):
    """A bucket that answers no request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        self.asked.set()
        wait(request_loop().begin(asyncio.sleep(60)))
        raise AssertionError("it was waited for to the end")


def outcome(part: int) -> Outcome:
    receipt = Receipt(
        key=f"00000000-{part:06d}", extents=[], files=[], documents=0, tokens=0, counts={},
        read_digests={}, audited=1, excluded=[], seconds=0.0,
    )  # fmt: skip
    return Outcome(receipt=receipt, audit_texts=["abc"], audit_ids=[[3]], seconds={})


class SlowStore(MemoryStore):
    """The receipt of the first unit takes until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        if name == receipt_name("00000000-000000"):
            assert self.let_go.wait(60)
        return super().create(name, data, durable=durable)


@contextmanager
def threads_of(
    store: MemoryStore, reference: Engine | None = None
) -> Iterator[tuple[Committer, threading.Semaphore]]:
    """Threads, and what is released with each result."""
    woken = threading.Semaphore(0)
    threads = Committer(store, reference or Lengths(), "engine")
    threads.start_threads(woken.release)
    try:
        yield threads, woken
    finally:
        threads.close()


def keys(found: list[Committed]) -> list[str]:
    return [each.receipt.key[-1] for each in found]


def test_a_receipt_that_takes_long_keeps_no_other_waiting() -> None:
    store = SlowStore()
    with threads_of(store) as (threads, woken):
        for part in (0, 1):
            threads.commit(outcome(part))
        assert woken.acquire(timeout=60)
        assert keys(list(threads.done())) == ["1"]
        assert finished_keys(store) == {"00000000-000001"}
        store.let_go.set()
        assert woken.acquire(timeout=60)
        assert keys(list(threads.done())) == ["0"]
    assert len(finished_keys(store)) == 2


def test_the_end_waits_for_no_store_that_does_not_answer() -> None:
    store = DeadStore()
    with threads_of(store) as (threads, woken):
        threads.commit(outcome(0))
        assert store.asked.wait(60)
    assert woken.acquire(timeout=60)
    with pytest.raises(CancelledError):
        list(threads.done())


def test_the_end_begins_no_further_audit() -> None:
    store, reference = MemoryStore(), SlowReference()
    with threads_of(store, reference) as (threads, _):
        for part in range(3):
            threads.commit(outcome(part))
        end = threading.Thread(target=threads.close)
        end.start()
        while threads._closed_at is None:
            pass
        reference.let_go.set()
        end.join()
    assert reference.num_calls <= 1
    assert len(finished_keys(store)) <= 1


def test_there_is_room_until_too_many_results_wait() -> None:
    store = SlowStore()
    with threads_of(store) as (threads, woken):
        for part in range(MOST_WAITING):
            assert threads.has_room
            threads.commit(outcome(part))
        assert not threads.has_room
        assert woken.acquire(timeout=60)
        assert list(threads.done())
        assert threads.has_room
        store.let_go.set()
