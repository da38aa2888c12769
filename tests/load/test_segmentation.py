"""Where segments lie: what they are made of, what is derived from them, and what is refused."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core.errors import UserError
from tokenmill.load.rows.segmentation import Segmentation

EXAMPLE = Segmentation.of_lengths([[3, 3], [7]], 7)
"""That of the module."""


def made(edges: list[int], is_padding: list[bool], num_rows: int, row_length: int) -> Segmentation:
    return Segmentation(num_rows, row_length, np.array(edges, np.int32), np.array(is_padding, bool))


def shown(segmentation: Segmentation) -> tuple[int, int, list[int], list[bool]]:
    edges, is_padding = segmentation.edges.tolist(), segmentation.is_padding.tolist()
    return segmentation.num_rows, segmentation.row_length, edges, is_padding


# Edges that are no segmentation.


@pytest.mark.parametrize(
    ("edges", "is_padding"),
    [
        ([1, 4, 8], [False, False]),
        ([0, 4], [False]),
        ([0, 4, 9], [False, False]),
        ([0, 4, 8], [False]),
        ([0, 4, 8], [False] * 3),
        ([0, 8], []),
        ([], []),
    ],
)
def test_segments_cover_their_rows(edges: list[int], is_padding: list[bool]) -> None:
    with pytest.raises(UserError) as caught:
        made(edges, is_padding, num_rows=2, row_length=4)
    assert caught.value.what == "the segments do not cover their rows"
    assert caught.value.why == f"{len(edges)} edges, {len(is_padding)} segments, 8 tokens"


@pytest.mark.parametrize("edges", [[0, 8], [0, 3, 8], [0, 4, 4, 8], [0, 5, 4, 8], [0, 4, 9, 8]])
def test_segments_rise_and_end_with_their_rows(edges: list[int]) -> None:
    with pytest.raises(UserError, match="a segment is empty or extends into the next row"):
        made(edges, [False] * (len(edges) - 1), num_rows=2, row_length=4)


# Some of the rows.


@pytest.mark.parametrize(("first", "stop"), [(0, 3), (1, 0), (-1, 1)])
def test_rows_that_do_not_exist_are_refused(first: int, stop: int) -> None:
    with pytest.raises(UserError):
        EXAMPLE.part(first, stop)


# Edges of a fixed size.


def test_too_many_segments_for_the_size_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        EXAMPLE.padded_edges(3)
    assert caught.value.what == "too many segments"
    assert caught.value.why == "there are 4, and cu_seqlens has room for 3"


# What always holds.


@st.composite
def lengths_of_rows(draw: st.DrawFn) -> tuple[list[list[int]], int]:
    """Segments of some rows, and the length of a row."""
    rows = draw(st.lists(st.lists(st.integers(1, 6), max_size=5), max_size=6))
    longest = max(map(sum, rows), default=0)
    return rows, draw(st.integers(max(longest, 1), longest + 3))


@given(rows_and_length=lengths_of_rows(), data=st.data())
def test_ids_positions_and_parts_follow_from_the_lengths(
    rows_and_length: tuple[list[list[int]], int], data: st.DataObject
) -> None:
    rows, row_length = rows_and_length
    whole = Segmentation.of_lengths(rows, row_length)
    ids, positions = [], []
    for row in rows:
        rest = row_length - sum(row)
        numbers = [number for number, length in enumerate(row) for _ in range(length)]
        ids.append(numbers + [-1] * rest)
        positions.append([place for length in [*row, rest] for place in range(length)])
    assert whole.ids.tolist() == ids
    assert whole.positions.tolist() == positions
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=3).map(sorted))
    for first, stop in pairwise([0, *cuts, len(rows)]):
        assert shown(whole.part(first, stop)) == shown(
            Segmentation.of_lengths(rows[first:stop], row_length)
        )
