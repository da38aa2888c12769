"""The heart-beat: stored at the beginning, again and again, and at the end with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from memory_store import MemoryStore

from tokenmill.run.journal import agents
from tokenmill.run.journal.agents import (
    AgentState,
    HeartBeat,
    Tallies,
    parse_state,
    state_name,
)
from tokenmill.store.manifest import Attempt

AGENT = "00003-9f3a2c55"
ATTEMPT = Attempt(started="", workers=2, memory_bytes=1, max_bad=0.0, on_bad_file="fail")


def said(store: MemoryStore) -> AgentState | None:
    return parse_state(store.objects.get(state_name(AGENT)))


def beat_into(store: MemoryStore) -> HeartBeat:
    return HeartBeat(store, AGENT, ATTEMPT, {"tokenmill": "1"})


@pytest.fixture(autouse=True)
def fast_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "BEAT_SECONDS_ALONE", 0.01)


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.005)


def test_beats_tell_what_was_done_and_why_the_agent_left() -> None:
    store = MemoryStore()
    beat = beat_into(store)
    beat.begin()
    state = said(store)
    assert state is not None, "the first one is stored before anything is claimed"
    assert (state.agent, state.workers, state.left) == ("00003-9f3a2c55", 2, "")
    beat.tallies = Tallies(documents=7, items=["00000001-000000"])
    wait_for(lambda: said(store).tallies.documents == 7)  # type: ignore[union-attr]
    beat.end("the disk is full")
    state = said(store)
    assert state is not None
    assert (state.left, state.tallies.items) == ("the disk is full", ["00000001-000000"])
    counter = state.counter
    beat.end("again")
    assert said(store).counter == counter  # type: ignore[union-attr]


def test_a_store_that_fails_for_a_while_ends_nothing() -> None:
    store = MemoryStore()
    store.fails = True
    beat = beat_into(store)
    beat.begin()
    wait_for(lambda: store.requests["replace"] > 3)
    assert said(store) is None
    store.fails = False
    wait_for(lambda: said(store) is not None)
    beat.end("done")


def test_what_cannot_be_read_is_no_state() -> None:
    for data in (
        None,
        b"",
        b"[" * 100_000,
        b"\xff",
        b'{"agent": 3}',
        b'{"agent": "a", "counter": -1}',
    ):
        assert parse_state(data) is None
