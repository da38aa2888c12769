"""Packing from histograms: the published tables, and the same procedures on lists."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import SHARED
from tokenmill.pack.histogram import (
    Placements,
    best_fit,
    count_sizes,
    longest_pack_first,
    shortest_pack_first,
)
from tokenmill.pack.options import PackOptions
from tokenmill.pack.strategy import Pieces, load_strategy
from tokenmill.records import Int64Array, Segments, Sequences

PLANS = {"shortest-pack-first": shortest_pack_first, "longest-pack-first": longest_pack_first}
NAMES = sorted(PLANS)

LENGTHS = {"wikipedia": 512, "squad_1_1": 384}

# Data, strategy, most segments, sequences, padding in tokens, efficiency in %, packing factor.
TABLE = [
    ("wikipedia", "shortest-pack-first", 1, 16_279_552, 4_170_334_451, "49.9668", "1.00000"),
    ("wikipedia", "shortest-pack-first", 2, 10_101_683, 1_007_265_523, "80.5249", "1.61157"),
    ("wikipedia", "shortest-pack-first", 3, 9_094_695, 491_687_667, "89.4408", "1.79001"),
    ("wikipedia", "shortest-pack-first", 4, 8_658_996, 268_609_779, "93.9412", "1.88007"),
    ("wikipedia", "shortest-pack-first", 6, 8_324_436, 97_315_059, "97.7167", "1.95563"),
    ("wikipedia", "shortest-pack-first", 8, 8_224_673, 46_236_403, "98.9020", "1.97936"),
    ("wikipedia", "shortest-pack-first", 12, 8_166_708, 16_558_323, "99.6040", "1.99340"),
    ("wikipedia", "shortest-pack-first", 16, 8_166_708, 16_558_323, "99.6040", "1.99340"),
    ("wikipedia", "shortest-pack-first", 512, 8_166_708, 16_558_323, "99.6040", "1.99340"),
    ("wikipedia", "longest-pack-first", 1, 16_279_552, 4_170_334_451, "49.9668", "1.00000"),
    ("wikipedia", "longest-pack-first", 4, 8_660_327, None, "93.9268", None),
    ("wikipedia", "longest-pack-first", 6, 8_323_237, None, "97.7308", None),
    ("wikipedia", "longest-pack-first", 8, 8_212_127, None, "99.0531", None),
    ("wikipedia", "longest-pack-first", 12, 8_160_389, 13_322_995, "99.6811", "1.99495"),
    ("wikipedia", "longest-pack-first", 512, 8_147_988, 6_973_683, "99.8328", "1.99798"),
    ("wikipedia", "best-fit", 12, None, None, "99.8129", "1.99758"),
    ("squad_1_1", "shortest-pack-first", 1, 88_641, None, "44.8011", "1.00000"),
    ("squad_1_1", "shortest-pack-first", 2, 45_335, None, "87.5972", "1.95524"),
    ("squad_1_1", "shortest-pack-first", 3, 40_711, 383_545, "97.5466", "2.17732"),
    ("squad_1_1", "shortest-pack-first", 384, 40_711, 383_545, "97.5466", "2.17732"),
    ("squad_1_1", "longest-pack-first", 1, 88_641, None, "44.8011", "1.00000"),
    ("squad_1_1", "longest-pack-first", 2, 45_335, None, "87.5972", "1.95524"),
    ("squad_1_1", "longest-pack-first", 3, 40_711, 383_545, "97.5466", "2.17732"),
    ("squad_1_1", "longest-pack-first", 384, 40_711, 383_545, "97.5466", "2.17732"),
]


def published_histogram(name: str) -> Int64Array:
    path = SHARED / "krell2021_length_histograms.json"
    if not path.exists():
        pytest.skip(f"no {path.name} at hand")
    counts = json.loads(path.read_text())[f"{name}_histogram"]
    return np.array([0, *counts], np.int64)


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
    return load_strategy(name).pack(make_pieces(sizes), options)


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


@pytest.mark.parametrize(
    ("data", "name", "limit", "num_sequences", "padding", "efficiency", "factor"), TABLE
)
def test_the_published_table_is_reproduced(
    data: str,
    name: str,
    limit: int,
    num_sequences: int | None,
    padding: int | None,
    efficiency: str,
    factor: str | None,
) -> None:
    histogram, length = published_histogram(data), LENGTHS[data]
    if name == "best-fit":
        found = best_fit(histogram, length, limit).num_sequences
    else:
        found = PLANS[name](histogram, length, limit).num_sequences
    num_tokens = int(histogram @ np.arange(length + 1))
    assert num_sequences in (None, found)
    assert padding in (None, found * length - num_tokens)
    assert f"{100 * num_tokens / (found * length):.4f}" == efficiency
    assert factor in (None, f"{histogram.sum() / found:.5f}")


def test_without_a_limit_longest_pack_first_uses_22_segments_on_wikipedia() -> None:
    plan = longest_pack_first(published_histogram("wikipedia"), 512, 512)
    assert segments_of(plan).max() == 22


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 12, 384])
def test_published_lengths_pack_into_as_many_sequences_as_planned(limit: int) -> None:
    histogram = published_histogram("squad_1_1")
    sizes = np.repeat(np.arange(385), histogram).tolist()
    for name, plan in PLANS.items():
        assert len(pack(name, sizes, 384, limit)) == plan(histogram, 384, limit).num_sequences
    assert len(pack("best-fit", sizes, 384, limit)) == best_fit(histogram, 384, limit).num_sequences


def segments_of(plan: Placements) -> Int64Array:
    """Segments of each sequence, shape (num_sequences,)."""
    result = np.zeros(plan.num_sequences, np.int64)
    for _, first, count, repeat in plan.rows.tolist():
        result[first : first + count] += repeat
    return result


def test_shortest_pack_first_fills_the_most_room_and_longest_pack_first_the_least() -> None:
    sizes = [6, 7, 5, 2, 1]
    assert sizes_of(pack("shortest-pack-first", sizes, 8)) == [[6, 1], [7], [5, 2]]
    assert sizes_of(pack("longest-pack-first", sizes, 8)) == [[6, 2], [7, 1], [5]]


def test_pieces_that_fit_nowhere_open_a_sequence_each_unless_distributed() -> None:
    histogram = count_sizes(np.array([3, 3, 3], np.int32), 8)
    assert histogram.tolist() == [0, 0, 0, 3, 0, 0, 0, 0, 0]
    rows = longest_pack_first(histogram, 8, 8).rows.tolist()
    assert rows == shortest_pack_first(histogram, 8, 8).rows.tolist() == [[3, 0, 3, 1]]
    distributed = best_fit(histogram, 8, 8)
    assert distributed.rows.tolist() == [[3, 0, 1, 2], [3, 1, 1, 1]]
    assert distributed.num_sequences == best_fit(histogram, 8, 8).num_sequences == 2


def test_the_first_pieces_of_a_size_go_into_the_first_sequences() -> None:
    sequences = pack("longest-pack-first", [5, 3, 5, 3], 8)
    assert sequences.offsets.tolist() == [0, 2, 4]
    assert sequences.segments.documents.tolist() == [0, 1, 2, 3]


def test_the_work_does_not_grow_with_the_number_of_pieces() -> None:
    histogram = np.array([0, 9, 1, 7, 3, 8, 2, 5, 4])
    for plan in PLANS.values():
        few, many = plan(histogram, 8, 4), plan(histogram * 10**12, 8, 4)
        assert len(many.rows) == len(few.rows)
        assert many.num_sequences == few.num_sequences * 10**12


def test_more_placements_than_are_made_room_for_at_first() -> None:
    sizes = list(range(1, 3001))
    plan = shortest_pack_first(count_sizes(np.array(sizes, np.int32), 3000), 3000, 3000)
    assert len(plan.rows) == 3000
    assert sizes_of(pack("shortest-pack-first", [3000, *sizes], 3000))[0] == [3000]


def test_nothing_packs_into_nothing() -> None:
    for name in NAMES:
        assert pack(name, [], 8).offsets.tolist() == [0]
    assert best_fit(np.zeros(9, np.int64), 8, 8).num_sequences == 0


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
