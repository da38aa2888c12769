"""StreamPacker: portions do not matter, its state resumes exactly, and it holds little."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packing_kit import pack_sizes, shown
from tokenmill.core.errors import UserError
from tokenmill.core.records import Segments
from tokenmill.packing.strategy import Pieces
from tokenmill.packing.streaming import StreamPacker

Rows = list[list[tuple[int, int, int]]]


def portion(sizes: list[int], first: int = 0) -> Pieces:
    """Piece i is all of document `first` + i; documents of a stream are numbered by int64."""
    lengths = np.array(sizes, np.int32)
    documents = np.arange(first, first + len(sizes), dtype=np.int64)
    starts = np.zeros(len(sizes), np.int32)
    return Pieces(Segments(documents, starts, lengths), lengths)  # type: ignore[arg-type]


def pushed(packer: StreamPacker, sizes: list[int], first: int = 0) -> Rows:
    return shown(packer.push(portion(sizes, first)))


def in_portions(packer: StreamPacker, sizes: list[int], edges: list[int]) -> Rows:
    rows: Rows = []
    for start, stop in zip([0, *edges], [*edges, len(sizes)], strict=True):
        rows += pushed(packer, sizes[start:stop], start)
    return rows + shown(packer.finish())


def by_the_rule(sizes: list[int], length: int, most_open: int, limit: int) -> Rows:
    """Piece by piece: the fullest with room, of those the last used; the fullest is given out."""
    opened: list[tuple[int, int, list[int]]] = []  # number, room, documents; last used last
    given_out: list[list[int]] = []
    number = 0
    for document, size in enumerate(sizes):
        fitting = [entry for entry in opened if entry[1] >= size]
        if fitting:
            least = min(room for _, room, _ in fitting)
            entry = [entry for entry in fitting if entry[1] == least][-1]
            opened.remove(entry)
        else:
            entry = (number, length, [])
            number += 1
            at_once = size == length or limit == 1
            if len(opened) == most_open and not at_once:
                least = min(room for _, room, _ in opened)
                fullest = [entry for entry in opened if entry[1] == least][-1]
                opened.remove(fullest)
                given_out.append(fullest[2])
        entry = (entry[0], entry[1] - size, [*entry[2], document])
        if entry[1] == 0 or len(entry[2]) == limit:
            given_out.append(entry[2])
        else:
            opened.append(entry)
    rows = given_out + [documents for _, _, documents in sorted(opened)]
    return [[(document, 0, sizes[document]) for document in documents] for documents in rows]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], dict[str, Any], list[int]]:
    """Sizes, what the packer is made with, and where portions end."""
    length = draw(st.integers(2, 100) | st.sampled_from([4096, 5000, 300_000]))
    longest = draw(st.sampled_from([length, max(length // 3, 1)]))
    sizes = draw(st.lists(st.integers(1, longest), max_size=60))
    settings_of_packer = {
        "sequence_length": length,
        "open_sequences": draw(st.integers(1, 8)),
        "max_segments": draw(st.none() | st.integers(1, 5)),
    }
    edges = sorted(draw(st.lists(st.integers(0, len(sizes)), max_size=5)))
    return sizes, settings_of_packer, edges


def test_after_the_end_a_packer_is_as_new() -> None:
    packer = StreamPacker(8)
    pushed(packer, [5, 4])
    packer.finish()
    assert shown(packer.finish()) == []
    assert pushed(packer, [3, 8]) == [[(1, 0, 8)]]
    assert shown(packer.finish()) == [[(0, 0, 3)]]


def test_documents_may_have_numbers_beyond_32_bits() -> None:
    packer = StreamPacker(8)
    assert pushed(packer, [5, 3], first=2**40) == [[(2**40, 0, 5), (2**40 + 1, 0, 3)]]


@settings(max_examples=150, deadline=None)
@given(streams())
def test_portions_do_not_matter(case: tuple[list[int], dict[str, Any], list[int]]) -> None:
    sizes, made_with, edges = case
    rows = in_portions(StreamPacker(**made_with), sizes, edges)
    assert rows == in_portions(StreamPacker(**made_with), sizes, [])
    assert rows == in_portions(StreamPacker(**made_with), sizes, list(range(1, len(sizes))))


@settings(max_examples=150, deadline=None)
@given(streams())
def test_sequences_are_those_of_the_rule(case: tuple[list[int], dict[str, Any], list[int]]) -> None:
    sizes, made_with, edges = case
    length, most_open = made_with["sequence_length"], made_with["open_sequences"]
    limit = min(made_with["max_segments"] or length, length)
    expected = by_the_rule(sizes, length, most_open, limit)
    assert in_portions(StreamPacker(**made_with), sizes, edges) == expected


@settings(max_examples=100, deadline=None)
@given(streams())
def test_the_strategy_is_the_same_packing(
    case: tuple[list[int], dict[str, Any], list[int]],
) -> None:
    sizes, made_with, edges = case
    rows = in_portions(StreamPacker(**made_with), sizes, edges)
    options = {name: made_with[name] for name in ("open_sequences", "max_segments")}
    assert rows == shown(pack_sizes("streaming", sizes, made_with["sequence_length"], **options))


@settings(max_examples=150, deadline=None)
@given(streams())
def test_a_state_resumes_exactly_wherever_it_was_taken(
    case: tuple[list[int], dict[str, Any], list[int]],
) -> None:
    sizes, made_with, _ = case
    whole = in_portions(StreamPacker(**made_with), sizes, [])
    packer = StreamPacker(**made_with)
    rows: Rows = []
    for place in range(len(sizes) + 1):
        state = json.loads(json.dumps(packer.state_dict()))
        resumed = StreamPacker(**made_with)
        resumed.load_state_dict(state)
        assert resumed.state_dict() == packer.state_dict()
        rest = pushed(resumed, sizes[place:], place) + shown(resumed.finish())
        assert rows + rest == whole
        if place < len(sizes):
            rows += pushed(packer, [sizes[place]], place)
    assert rows + shown(packer.finish()) == whole


@settings(max_examples=100, deadline=None)
@given(streams())
def test_no_more_sequences_are_open_than_allowed_and_no_token_is_lost(
    case: tuple[list[int], dict[str, Any], list[int]],
) -> None:
    sizes, made_with, _ = case
    packer = StreamPacker(**made_with)
    out: list[int] = []
    for place, size in enumerate(sizes):
        out += [document for row in pushed(packer, [size], place) for document, _, _ in row]
        state = packer.state_dict()
        assert all(len(values) <= made_with["open_sequences"] for values in state["open"])
        assert sorted(out + state["segments"][0]) == list(range(place + 1))
        room = len(state["open"][0]) * made_with["sequence_length"]
        assert sum(state["segments"][2]) + sum(state["open"][1]) == room


def test_a_state_is_small_however_much_has_gone_through() -> None:
    packer = StreamPacker(8, open_sequences=2)
    few = json.dumps(packer.state_dict())
    for start in range(0, 10_000, 100):
        pushed(packer, [5, 3] * 50, start)
    assert len(json.dumps(packer.state_dict())) <= len(few) + 5


def test_nothing_grows_with_the_sequences_that_were_given_out() -> None:
    """As after a million million of them."""
    packer = StreamPacker(8, open_sequences=2)
    packer.load_state_dict(packer.state_dict() | {"num_opened": 10**12})
    assert pushed(packer, [5, 3, 4]) == [[(0, 0, 5), (1, 0, 3)]]
    assert shown(packer.finish()) == [[(2, 0, 4)]]


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [
        ("version", 2, 1),
        ("sequence_length", 9, 8),
        ("max_segments", 3, 8),
        ("open_sequences", 5, 1024),
    ],
)
def test_the_state_of_another_packer_is_refused(name: str, value: int, own: int) -> None:
    packer = StreamPacker(8)
    pushed(packer, [5])
    before = packer.state_dict()
    with pytest.raises(UserError, match="the state belongs to another packer") as raised:
        packer.load_state_dict(StreamPacker(8).state_dict() | {name: value})
    assert f"{name} is {value} in the state and {own} here" in str(raised.value)
    assert packer.state_dict() == before


@pytest.mark.parametrize(
    "change",
    [
        {"open": [[0], [9], [1]]},
        {"open": [[0], [0], [1]]},
        {"open": [[0], [3], []]},
        {"open": [[7], [3], [1]]},
        {"open": [[0, 1, 2], [3, 3, 3], [1, 1, 1]]},
        {"segments": [[0], [0], [5], []]},
        {"num_opened": 0},
        {"num_opened": -1},
        {"num_opened": 2**63},
        {"more": 1},
    ],
)
def test_a_state_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    packer = StreamPacker(8, open_sequences=2)
    pushed(packer, [5])
    state = packer.state_dict()
    fresh = StreamPacker(8, open_sequences=2)
    with pytest.raises(UserError, match="not the state of a packer"):
        fresh.load_state_dict(state | change)
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state


def test_a_piece_that_is_too_long_is_refused_and_changes_nothing() -> None:
    packer = StreamPacker(8)
    pushed(packer, [5])
    before = packer.state_dict()
    with pytest.raises(UserError, match="a piece is longer than a sequence") as raised:
        packer.push(portion([1, 9], first=1))
    assert "it takes 9 tokens of 8" in str(raised.value)
    assert packer.state_dict() == before
