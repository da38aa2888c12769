"""The heart-beat: stored at the beginning, again and again, and at the end with the reason."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from memory_store import MemoryStore

from tokenmill.read.units import Unit
from tokenmill.run.executor import Receipt, Tally
from tokenmill.run.journal.agents import (
    AgentState,
    HeartBeat,
    Tallies,
    beat_seconds_for,
    parse_state,
    state_name,
)
from tokenmill.run.launch import AgentShare
from tokenmill.run.progress import ProgressBoard
from tokenmill.store.manifest import Attempt, Counts, FileEntry

AGENT = "00003-9f3a2c55"
ATTEMPT = Attempt(started="", workers=2, memory_bytes=1, max_bad=0.0, on_bad_file="fail")


def said(store: MemoryStore) -> AgentState | None:
    return parse_state(store.objects.get(state_name(AGENT)))


def beat_into(store: MemoryStore) -> HeartBeat:
    return HeartBeat(store, AGENT, ATTEMPT, {"tokenmill": "1"}, beat_seconds=0.01)


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


def receipt_of(unit: Unit) -> Receipt:
    """The receipt of a unit: a document of 3 tokens, a rejected record, 60 bytes of files."""
    return Receipt(
        key=unit.key, extents=[], files=[FileEntry(name="bin", bytes=60, xxh3_128="")],
        documents=1, tokens=3,
        counts={"0": Counts(documents=1, tokens=3, record_bytes=40, rejected={"invalid-json": 1})},
        read_digests={}, audited=0, excluded=[], seconds=1, input_bytes=unit.num_bytes,
    )  # fmt: skip


def test_a_beat_tells_what_is_finished_and_what_earlier_attempts_had_finished() -> None:
    board = ProgressBoard(100, 2, [])
    units = [Unit(f"00000000-00000{number}", (), 20) for number in range(3)]
    board.resume([receipt_of(units[0])])
    board.start(units[1])
    board.finish(units[1], receipt_of(units[1]), {"read": 0.25})
    beat = HeartBeat(MemoryStore(), AGENT, ATTEMPT, {}, alone=True)
    beat.tell(board.snapshot(), board, ["b", "a"])
    assert beat.tallies.memory_bytes > 0
    assert beat.tallies == Tallies(
        memory_bytes=beat.tallies.memory_bytes, documents=2, tokens=6, bytes_done=40,
        bytes_total=100, items=["a", "b"], alone=True,
        resumed_bytes=20, finished_bytes=40, disk_bytes=120, rejected={"invalid-json": 2},
        stages={"read": 0.25},
    )  # fmt: skip
    assert board.last_unit() is None
    for unit, num_bytes in ((units[1], 20), (units[2], 4)):  # of 40 bytes of records
        board.start(unit)
        board.advance(unit.key, Tally(bytes=num_bytes))
    last = board.last_unit()
    assert last is not None
    assert last.key == units[2].key
    assert last.left_seconds == pytest.approx(9 * last.seconds)


def test_a_compressed_unit_is_not_done_when_as_many_bytes_are_read_as_it_has_on_disk() -> None:
    board = ProgressBoard(100, 2, [], ratio=0.25)
    unit = Unit("00000000-000000", (), 100)
    board.start(unit)
    board.advance(unit.key, Tally(bytes=100))
    assert board.snapshot().done_bytes == 25


def test_an_agent_that_starts_a_unit_that_it_took_over_waits_no_longer() -> None:
    board = ProgressBoard(100, 2, [], num_awaited=1)
    assert board.snapshot().num_awaited == 1
    board.start(Unit("00000000-000000", (), 100))
    assert board.snapshot().num_awaited == 0


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


@pytest.mark.parametrize(
    ("num_agents", "num_bytes", "patience", "wanted"),
    [
        (None, 10**12, None, 2.0),
        (2, 1 << 20, None, 2.0),
        (2, 10**9, None, 5.0),
        (10, 10**12, None, 20.0),
        (100, 1 << 20, None, 10.0),
        (2, 10**12, 3.0, 1.0),
        (None, 1, 300.0, 100.0),
    ],
)
def test_agents_of_small_jobs_are_missed_sooner(
    num_agents: int | None, num_bytes: int, patience: float | None, wanted: float
) -> None:
    share = None if num_agents is None else AgentShare(0, num_agents)
    assert beat_seconds_for(share, num_bytes, patience) == wanted
