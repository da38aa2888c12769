"""Balanced packing: whole results of small cases, and what always holds."""

from __future__ import annotations

from itertools import chain, pairwise

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.core.records import Int64Array, Segments, Sequences
from tokenmill.packing import balanced, strategies
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategy import Pieces


def pieces_of(sizes: list[int]) -> Pieces:
    """Piece i is all of document i."""
    lengths = np.array(sizes, np.int32)
    count = len(sizes)
    segments = Segments(np.arange(count, dtype=np.int32), np.zeros(count, np.int32), lengths)
    return Pieces(segments, lengths)


def as_lists(sequences: Sequences) -> list[list[int]]:
    """The documents of each sequence."""
    parts = np.split(sequences.segments.documents, sequences.offsets[1:-1])
    return [part.tolist() for part in parts] if len(sequences) else []


def sizes_of(sequences: Sequences) -> list[list[int]]:
    """The piece sizes of each sequence."""
    parts = np.split(sequences.segments.lengths, sequences.offsets[1:-1])
    return [part.tolist() for part in parts] if len(sequences) else []


def costs_of(sequences: Sequences) -> Int64Array:
    """The sum of squared lengths of each sequence."""
    return np.array([sum(size * size for size in sizes) for sizes in sizes_of(sequences)])


def packed(sizes: list[int], length: int, ranks: int, limit: int | None = None) -> Sequences:
    options = PackOptions(sequence_length=length, ranks=ranks, max_segments=limit)
    return balanced.pack(pieces_of(sizes), options)


def test_costs_are_even_within_a_group() -> None:
    sequences = packed([4, 2, 2, 2, 2], length=8, ranks=2)
    assert sizes_of(sequences) == [[4], [2, 2, 2, 2]]
    assert costs_of(sequences).tolist() == [16, 16]


def test_fewer_sequences_than_best_fit_where_few_segments_are_allowed() -> None:
    sizes = np.random.default_rng(0).integers(16, 513, 10_000).tolist()
    options = PackOptions(sequence_length=4096, ranks=8, max_segments=12)
    assert len(strategies.best_fit(pieces_of(sizes), options)) == 895
    assert len(balanced.pack(pieces_of(sizes), options)) == 840


def test_as_many_groups_as_best_fit_where_there_is_no_slack() -> None:
    lengths = np.rint(np.random.default_rng(0).lognormal(6.2, 1.1, 20_000)).clip(1, 4096)
    options = PackOptions(sequence_length=4096, ranks=1)
    pieces = pieces_of(lengths.astype(int).tolist())
    assert len(balanced.pack(pieces, options)) == len(strategies.best_fit(pieces, options))


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], int, int, int | None]:
    """Sizes, sequence length, ranks, and a limit of segments."""
    length = draw(st.integers(1, 200))
    longest = draw(st.integers(1, length))
    sizes = draw(st.lists(st.integers(1, longest), max_size=150))
    limit = draw(st.none() | st.integers(1, 12))
    return sizes, length, draw(st.integers(1, 12)), limit


@settings(max_examples=200, deadline=None)
@given(cases())
@example(([1] * 100, 100, 3, None))
@example(([6] * 17 + [5] * 12 + [4] * 16, 12, 11, None))  # best fit, two of its sequences split
def test_for_any_pieces(case: tuple[list[int], int, int, int | None]) -> None:
    sizes, length, ranks, limit = case
    sequences = packed(sizes, length, ranks, limit)
    documents = as_lists(sequences)
    assert sorted(chain.from_iterable(documents)) == list(range(len(sizes)))
    assert all(sum(part) <= length for part in sizes_of(sequences))
    assert all(1 <= len(part) <= (limit or length) for part in documents)

    groups = -(-len(sequences) // ranks)
    assert len(sequences) == min(groups * ranks, len(sizes))
    options = PackOptions(sequence_length=length, ranks=ranks, max_segments=limit)
    assert groups <= -(-len(strategies.best_fit(pieces_of(sizes), options)) // ranks)

    assert as_lists(packed(sizes, length, ranks, limit)) == documents


@settings(max_examples=200, deadline=None)
@given(cases())
def test_groups_do_not_overlap_in_cost(case: tuple[list[int], int, int, int | None]) -> None:
    sizes, length, ranks, limit = case
    costs = costs_of(packed(sizes, length, ranks, limit))
    groups = sorted(
        (part.min(), part.max())
        for part in np.split(costs, range(ranks, len(costs), ranks))
        if len(part)
    )
    assert all(first[1] <= second[0] for first, second in pairwise(groups))
