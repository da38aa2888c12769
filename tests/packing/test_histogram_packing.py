"""Packing from histograms: plans, and the same procedures on lists."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.core.records import Int64Array, Segments, Sequences
from tokenmill.packing.histogram import (
    Placements,
    best_fit,
    count_sizes,
    longest_pack_first,
    shortest_pack_first,
)
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import STRATEGIES
from tokenmill.packing.strategy import Pieces

PLANS = {"shortest-pack-first": shortest_pack_first, "longest-pack-first": longest_pack_first}
NAMES = sorted(PLANS)


def make_pieces(sizes: list[int]) -> Pieces:
    """Piece i is the whole of document i."""
    lengths = np.array(sizes, np.int32)
    documents = np.arange(len(sizes), dtype=np.int32)
    return Pieces(Segments(documents, np.zeros_like(documents), lengths), lengths)


def sizes_of(sequences: Sequences) -> list[list[int]]:
    parts = np.split(sequences.segments.lengths, sequences.offsets[1:-1])
    return [part.tolist() for part in parts][: len(sequences)]


def pack(name: str, sizes: list[int], length: int, limit: int | None = None) -> Sequences:
    options = PackOptions(sequence_length=length, max_segments=limit)
    return STRATEGIES[name].pack(make_pieces(sizes), options)


def pack_by_lists(name: str, sizes: list[int], length: int, limit: int) -> list[list[int]]:
    """The published procedures on lists: for every room a stack of sequences filled alike."""
    choose = max if name == "shortest-pack-first" else min
    stacks: dict[int, list[list[list[int]]]] = {}
    sequences: list[list[int]] = []
    for size, waiting in sorted(Counter(sizes).items(), reverse=True):
        while waiting > 0:
            rooms = [room for room, stack in stacks.items() if stack and room >= size]
            if rooms:
                room = choose(rooms)
                alike = stacks[room].pop()
                if alike[waiting:]:
                    stacks[room].append(alike[waiting:])
            else:
                room, alike = length, [[] for _ in range(waiting)]
                sequences += alike
            for sequence in alike[:waiting]:
                sequence.append(size)
            if room > size and len(alike[0]) < limit:
                stacks.setdefault(room - size, []).append(alike[:waiting])
            waiting -= len(alike[:waiting])
    return sorted(sequences)


def segments_of(plan: Placements) -> Int64Array:
    """Segments of each sequence, shape (num_sequences,)."""
    result = np.zeros(plan.num_sequences, np.int64)
    for _, first, count, repeat in plan.rows.tolist():
        result[first : first + count] += repeat
    return result


def test_pieces_that_fit_nowhere_open_a_sequence_each_unless_distributed() -> None:
    histogram = count_sizes(np.array([3, 3, 3], np.int32), 8)
    assert histogram.tolist() == [0, 0, 0, 3, 0, 0, 0, 0, 0]
    rows = longest_pack_first(histogram, 8, 8).rows.tolist()
    assert rows == shortest_pack_first(histogram, 8, 8).rows.tolist() == [[3, 0, 3, 1]]
    distributed = best_fit(histogram, 8, 8)
    assert distributed.rows.tolist() == [[3, 0, 1, 2], [3, 1, 1, 1]]
    assert distributed.num_sequences == best_fit(histogram, 8, 8).num_sequences == 2


def test_the_work_does_not_grow_with_the_number_of_pieces() -> None:
    histogram = np.array([0, 9, 1, 7, 3, 8, 2, 5, 4])
    for plan in PLANS.values():
        few, many = plan(histogram, 8, 4), plan(histogram * 10**12, 8, 4)
        assert len(many.rows) == len(few.rows)
        assert many.num_sequences == few.num_sequences * 10**12


@pytest.mark.parametrize(
    ("histogram", "limit", "reason"),
    [([0, 1], 1, "shape"), ([1, 0, 0], 1, "size 0"), ([0, 1, 0], 0, "max_segments")],
)
def test_what_cannot_be_planned_is_refused(histogram: list[int], limit: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        best_fit(np.array(histogram), 2, limit)


@st.composite
def packings(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Sizes, sequence length and most segments, with many pieces of few sizes among them."""
    length = draw(st.integers(1, 200))
    of_few = draw(st.lists(st.integers(1, length), min_size=1, max_size=6))
    size = draw(st.sampled_from([st.integers(1, length), st.sampled_from(of_few)]))
    return draw(st.lists(size, max_size=120)), length, draw(st.integers(1, length))


@settings(deadline=None)  # the first example compiles
@given(packings(), st.sampled_from(NAMES))
def test_every_piece_is_in_one_sequence_within_length_and_limit(
    packing: tuple[list[int], int, int], name: str
) -> None:
    sizes, length, limit = packing
    sequences = pack(name, sizes, length, limit)
    assert sorted(sequences.segments.documents.tolist()) == list(range(len(sizes)))
    assert [sizes[i] for i in sequences.segments.documents] == sequences.segments.lengths.tolist()
    assert all(sum(lengths) <= length for lengths in sizes_of(sequences))
    assert all(1 <= len(lengths) <= limit for lengths in sizes_of(sequences))


@settings(deadline=None)  # the first example compiles
@given(packings(), st.sampled_from(NAMES))
def test_plan_and_packing_are_those_of_the_published_procedure_on_lists(
    packing: tuple[list[int], int, int], name: str
) -> None:
    sizes, length, limit = packing
    expected = pack_by_lists(name, sizes, length, limit)
    found = [sorted(part, reverse=True) for part in sizes_of(pack(name, sizes, length, limit))]
    assert sorted(found) == expected
    plan = PLANS[name](count_sizes(np.array(sizes, np.int32), length), length, limit)
    assert plan.num_sequences == len(expected)
    assert sorted(segments_of(plan).tolist()) == sorted(len(part) for part in expected)


@settings(deadline=None)  # the first example compiles
@given(packings())
def test_best_fit_counts_are_those_of_best_fit_with_and_without_a_limit(
    packing: tuple[list[int], int, int],
) -> None:
    sizes, length, limit = packing
    histogram = count_sizes(np.array(sizes, np.int32), length)
    assert best_fit(histogram, length, length).num_sequences == len(pack("best-fit", sizes, length))
    assert best_fit(histogram, length, limit).num_sequences == len(
        pack("best-fit", sizes, length, limit)
    )
