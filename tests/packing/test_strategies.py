"""Packing strategies: whole results of small cases, published tables, brute force."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packing_kit import (
    NAMES,
    documents_of,
    figures_for,
    lengths_of,
    pack_sizes,
    seqpacker_lengths,
    shown,
    web_lengths,
)

SEQUENCE_LENGTHS = (512, 1024, 2048, 4096, 8192)

# Sequences of next-fit and first-fit, best-fit decreasing; None: not published.
SEQPACKER = {
    "uniform": [
        (6820, 5136, 5135),
        (3055, 2562, 2562),
        (1399, 1281, 1281),
        (668, None, 641),
        (None, None, 321),
    ],
    "lognormal": [
        (2916, 2485, 2485),
        (1346, 1245, 1245),
        (646, 622, 622),
        (None, None, 311),
        (None, None, 156),
    ],
    "exponential": [
        (2752, 2230, 2230),
        (1397, 1228, 1228),
        (None, None, 616),
        (None, None, 308),
        (None, None, None),
    ],
    "bimodal": [
        (2804, 2215, 2215),
        (2513, 1929, 1929),
        (1074, 964, 964),
        (None, None, 482),
        (None, None, 241),
    ],
}

# Sequence length; concat-and-chunk: sequences, documents cut, cuts; best-fit: cuts, documents
# cut, sequences, fill in %.
FEWER_TRUNCATIONS = [
    (1024, 882_677, 545_014, 881_709, 486_641, 253_671, 882_708, "99.9964"),
    (2048, 441_339, 352_077, 440_845, 149_670, 97_640, 441_352, "99.9969"),
    (4096, 220_670, 202_327, 220_424, 35_796, 27_243, 220_674, "99.9978"),
    (8192, 110_335, 107_484, 110_212, 6_281, 5_215, 110_336, "99.9987"),
    (32768, 27_584, 27_520, 27_546, 78, 74, 27_584, "99.9987"),
]

# Sequence length; sequences of all documents packed together, and of every thousand on their own.


def test_next_fit_closes_a_sequence_as_soon_as_a_piece_does_not_fit() -> None:
    assert lengths_of(pack_sizes("next-fit", [6, 7, 2, 5, 3], 8)) == [[6], [7], [2, 5], [3]]


def test_concat_and_chunk_cuts_wherever_a_sequence_is_full() -> None:
    sequences = pack_sizes("concat-and-chunk", [6, 7, 2], 8)
    assert shown(sequences) == [[(0, 0, 6), (1, 0, 2)], [(1, 2, 5), (2, 0, 2)]]


@pytest.mark.parametrize("packing", ["best-fit", "first-fit", "longest-pack-first"])
def test_decreasing_strategies_follow_the_corpus_in_what_they_give_out(packing: str) -> None:
    sequences = pack_sizes(packing, [6, 7, 5, 2, 3], 8)
    assert documents_of(sequences) == [[0, 3], [1], [2, 4]]


def test_shortest_pack_first_takes_the_emptiest_sequence() -> None:
    assert lengths_of(pack_sizes("shortest-pack-first", [6, 7, 5, 2, 1], 8)) == [
        [6, 1],
        [7],
        [5, 2],
    ]


def test_length_buckets_never_put_two_documents_together() -> None:
    sequences = pack_sizes("length-buckets", [2, 1, 7, 8], 8, smallest_bucket=2)
    assert shown(sequences) == [
        [(0, 0, 2)],
        [(1, 0, 1)],
        [(2, 0, 4)],
        [(2, 4, 2)],
        [(2, 6, 1)],
        [(3, 0, 8)],
    ]


@pytest.mark.parametrize("smallest", [1, 2, 4, 8, 16])
def test_lengths_in_buckets_are_powers_of_two_but_for_the_last_of_a_document(smallest: int) -> None:
    lengths = list(range(1, 100))
    sequences = shown(pack_sizes("length-buckets", lengths, 16, smallest_bucket=smallest))
    parts: dict[int, list[int]] = {}
    for [(document, start, length)] in sequences:
        assert start == sum(parts.setdefault(document, []))
        parts[document].append(length)
    assert [sum(parts[i]) for i in range(99)] == lengths
    for taken in parts.values():
        assert taken == sorted(taken, reverse=True)
        assert all(length in (1, 2, 4, 8, 16) and length >= smallest for length in taken[:-1])
        assert all(first > second for first, second in pairwise(taken) if first < 16)
        assert taken[-1] < smallest or taken[-1] in (1, 2, 4, 8, 16)


def test_order_preserving_asks_a_quarter_of_a_sequence_for_a_cut_by_default() -> None:
    # Five cuts at 2 tokens each would save one sequence of 8.
    whole = [[5], [7], [7], [7], [7], [8], [5]]
    assert lengths_of(pack_sizes("order-preserving", [5, 7, 7, 7, 7, 8, 5], 8)) == whole
    # Three cuts at 2 tokens each, beside two that cannot be avoided, do save one.
    chunks = [[8], [1, 7], [1, 7], [1, 7], [1, 7], [2]]
    assert lengths_of(pack_sizes("order-preserving", [9, 8, 8, 8, 9], 8)) == chunks


def runs_of(count: int) -> Iterator[list[tuple[int, int]]]:
    """All ways to part `count` documents into runs [first, stop)."""
    for breaks in range(1 << max(count - 1, 0)):
        edges = [0, *(i + 1 for i in range(count - 1) if breaks >> i & 1), count]
        yield list(pairwise(edges))


def cost_of_run(sizes: list[int], length: int, cut_cost: int) -> float:
    """Padding of the last sequence, and the cuts inside documents."""
    tokens = sum(sizes)
    sequences = -(-tokens // length)
    if len(sizes) > 1 and sequences > 16:
        return float("inf")
    ends = {sum(sizes[: i + 1]) for i in range(len(sizes))}
    cuts = sum(place not in ends for place in range(length, tokens, length))
    return sequences * length - tokens + cut_cost * cuts


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=9),
    st.integers(1, 16),
    st.integers(0, 30),
)
@example([6, 7, 2, 1], 8, 1)
@example([40, 40, 40, 40], 2, 0)
def test_order_preserving_is_the_cheapest_of_all_ways_to_form_runs(
    sizes: list[int], length: int, cut_cost: int
) -> None:
    least = min(
        sum(cost_of_run(sizes[first:stop], length, cut_cost) for first, stop in runs)
        for runs in runs_of(len(sizes))
    )
    sequences = shown(pack_sizes("order-preserving", sizes, length, cut_cost=cut_cost))
    padding = len(sequences) * length - sum(sizes)
    cuts = sum(len(row) for row in sequences) - len(sizes)
    assert padding + cut_cost * cuts == least


def first_fit_by_lists(sizes: list[int], length: int, limit: int) -> list[list[int]]:
    """The documents of each sequence: pieces by falling size, each into the first with room."""
    sequences: list[list[int]] = []
    rooms: list[int] = []
    for document in sorted(range(len(sizes)), key=lambda document: -sizes[document]):
        size = sizes[document]
        fitting = [
            i for i, room in enumerate(rooms) if room >= size and len(sequences[i]) < limit
        ] or [len(rooms)]
        if fitting[0] == len(rooms):
            sequences.append([])
            rooms.append(length)
        sequences[fitting[0]].append(document)
        rooms[fitting[0]] -= size
    return sorted(sorted(documents) for documents in sequences)


def best_fit_by_lists(sizes: list[int], length: int) -> list[int]:
    """The rooms left over: pieces by falling size, each where least room is that fits."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [room for room in rooms if room >= size]
        if fitting:
            rooms.remove(min(fitting))
        rooms.append((min(fitting) if fitting else length) - size)
    return sorted(rooms)


@st.composite
def sizes_and_length(draw: st.DrawFn) -> tuple[list[int], int]:
    """Up to 80 pieces, and sequences that may be very long."""
    length = draw(st.integers(1, 60) | st.sampled_from([4095, 4096, 4097, 300_000, 2**20]))
    longest = draw(st.sampled_from([length, max(length // 3, 1)]))
    return draw(st.lists(st.integers(1, longest), max_size=80)), length


@settings(max_examples=100, deadline=None)
@given(sizes_and_length(), st.integers(1, 80))
def test_first_fit_is_the_procedure_of_textbooks(case: tuple[list[int], int], limit: int) -> None:
    sizes, length = case
    sequences = pack_sizes("first-fit", sizes, length, max_segments=limit)
    expected = first_fit_by_lists(sizes, length, min(limit, length))
    assert documents_of(sequences) == expected


@settings(max_examples=100, deadline=None)
@given(sizes_and_length())
def test_best_fit_is_the_procedure_of_textbooks(case: tuple[list[int], int]) -> None:
    sizes, length = case
    rows = lengths_of(pack_sizes("best-fit", sizes, length))
    assert sorted(length - sum(row) for row in rows) == best_fit_by_lists(sizes, length)


@pytest.mark.parametrize("packing", NAMES)
def test_nothing_packs_into_nothing(packing: str) -> None:
    sequences = pack_sizes(packing, [], 8, smallest_bucket=2)
    assert shown(sequences) == []


@pytest.mark.parametrize("packing", NAMES)
def test_results_have_the_types_of_a_plan(packing: str) -> None:
    sequences = pack_sizes(packing, [5, 3, 8, 1], 8, smallest_bucket=2)
    segments = sequences.segments
    assert {segments.documents.dtype, segments.starts.dtype, segments.lengths.dtype} == {
        np.dtype(np.int32)
    }
    assert sequences.offsets.dtype == np.int64


@cache
def million_lengths() -> np.ndarray:
    return web_lengths(1_000_000)


def test_a_million_lengths_are_those_of_the_table() -> None:
    lengths = million_lengths()
    assert lengths.sum(dtype=np.int64) == 903_860_696
    assert lengths.max() == 89_783


@pytest.mark.parametrize(
    (
        "length",
        "rows_concatenated",
        "broken_concatenated",
        "cuts_concatenated",
        "cuts",
        "broken",
        "rows",
        "fill",
    ),
    FEWER_TRUNCATIONS,
)
def test_best_fit_breaks_few_documents_for_hardly_more_sequences(
    length: int,
    rows_concatenated: int,
    broken_concatenated: int,
    cuts_concatenated: int,
    cuts: int,
    broken: int,
    rows: int,
    fill: str,
) -> None:
    concatenated = figures_for(million_lengths(), length, packing="concat-and-chunk")
    assert concatenated.sequences == rows_concatenated
    assert concatenated.documents_cut == broken_concatenated
    assert concatenated.cuts == cuts_concatenated
    assert concatenated.unavoidable_cuts == cuts
    packed = figures_for(million_lengths(), length)
    assert packed.cuts == packed.unavoidable_cuts == cuts
    assert packed.documents_cut == broken
    assert packed.sequences == packed.planned_globally == rows
    assert packed.lower_bound == rows_concatenated
    assert f"{100 * packed.fill:.4f}" == fill


@pytest.mark.parametrize("distribution", SEQPACKER)
def test_sequences_are_as_many_as_those_of_seqpacker(distribution: str) -> None:
    for length, published in zip(SEQUENCE_LENGTHS, SEQPACKER[distribution], strict=True):
        lengths = seqpacker_lengths(distribution)
        sizes = lengths[lengths <= length].tolist()
        for packing, expected in zip(("next-fit", "first-fit", "best-fit"), published, strict=True):
            found = len(pack_sizes(packing, sizes, length))
            assert expected in (None, found), (packing, length)
