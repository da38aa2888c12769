"""Optimal packing: whole results of small cases, published tables, and what always holds."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packing_kit import documents_of, lengths_of, pack_sizes, seqpacker_lengths
from tokenmill.core.records import Int64Array
from tokenmill.packing.optimal import Patterns, best_fit_decreasing, fewest_sequences, lp_bound

# Distribution, length, sequences: the fewest of any published packer, our most, the lower bound.
# One more than the bound is allowed where the solver, and so its version, has a say.
SEQPACKER = [
    ("uniform", 512, 5135, 5133, 5132),
    ("uniform", 1024, 2562, 2561, 2561),
    ("uniform", 2048, 1281, 1281, 1281),
    ("uniform", 4096, 641, 641, 641),
    ("uniform", 8192, 321, 321, 321),
    ("lognormal", 512, 2485, 2471, 2471),
    ("lognormal", 1024, 1245, 1241, 1241),
    ("lognormal", 2048, 622, 621, 621),
    ("lognormal", 4096, 311, 311, 311),
    ("lognormal", 8192, 156, 156, 156),
    ("exponential", 512, 2230, 2230, 2230),
    ("exponential", 1024, 1228, 1228, 1228),
    ("exponential", 2048, 616, 616, 616),
    ("exponential", 4096, 308, 308, 308),
    ("bimodal", 512, 2215, 2194, 2194),
    ("bimodal", 1024, 1929, 1926, 1926),
    ("bimodal", 2048, 964, 963, 963),
    ("bimodal", 4096, 482, 482, 482),
    ("bimodal", 8192, 241, 241, 241),
]


def counts_of(sizes: list[int], length: int) -> Int64Array:
    return np.bincount(sizes, minlength=length + 1)


def as_dict(patterns: Patterns) -> dict[tuple[int, ...], int]:
    """How often each pattern is used."""
    parts = np.split(patterns.sizes, patterns.offsets[1:-1])
    used: Counter[tuple[int, ...]] = Counter()
    for part, times in zip(parts, patterns.times.tolist(), strict=True):
        used[tuple(part.tolist())] += times
    return dict(used)


def exactly_covered(patterns: Patterns, length: int, max_segments: int) -> Int64Array:
    """Pieces of each size in patterns that keep within both limits."""
    counts = np.zeros(length + 1, np.int64)
    for pattern, times in as_dict(patterns).items():
        assert sum(pattern) <= length
        assert 1 <= len(pattern) <= max_segments
        np.add.at(counts, list(pattern), times)
    return counts


def test_finds_two_sequences_where_best_fit_needs_three() -> None:
    sizes = [5, 4, 4, 3, 2, 2]
    assert lengths_of(pack_sizes("best-fit", sizes, 10)) == [[5, 4], [4, 3, 2], [2]]
    assert lengths_of(pack_sizes("optimal", sizes, 10)) == [[5, 3, 2], [4, 4, 2]]


def test_deals_pieces_of_one_size_in_their_order() -> None:
    sizes = [2, 4, 5, 2, 3, 4]
    assert documents_of(pack_sizes("optimal", sizes, 10)) == [[0, 2, 4], [1, 3, 5]]


def test_is_best_fit_where_that_is_as_good() -> None:
    sizes = [6, 7, 5, 2, 3]
    for limit in (None, 1, 2):
        ours = pack_sizes("optimal", sizes, 8, max_segments=limit)
        theirs = pack_sizes("best-fit", sizes, 8, max_segments=limit)
        assert documents_of(ours) == documents_of(theirs)


def test_a_limit_of_segments_is_part_of_the_search() -> None:
    # Best-fit closes both sequences of two pieces early: [5 5] [4 4] [1 1] is 3 sequences.
    sizes = [5, 5, 4, 4, 1, 1]
    sequences = lengths_of(pack_sizes("optimal", sizes, 10, max_segments=3))
    assert sequences == [[5, 4, 1], [5, 4, 1]]


@pytest.mark.parametrize(("kind", "length", "published", "ours", "bound"), SEQPACKER)
def test_no_more_sequences_than_any_published_packer(
    kind: str, length: int, published: int, ours: int, bound: int
) -> None:
    sizes = seqpacker_lengths(kind)
    sizes = sizes[sizes <= length]
    counts = counts_of(sizes, length)
    patterns = fewest_sequences(counts, length, length)
    if patterns is None:
        patterns = best_fit_decreasing(counts, length, length)
    assert (exactly_covered(patterns, length, length) == counts).all()
    assert lp_bound(counts, length, length) == bound
    assert bound <= patterns.num_sequences <= ours <= published


def test_the_same_pieces_give_the_same_sequences() -> None:
    sizes = np.random.default_rng(0).integers(20, 300, 500).tolist()
    first, second = (pack_sizes("optimal", sizes, 512, max_segments=3) for _ in range(2))
    assert documents_of(first) == documents_of(second)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=60),
    max_segments=st.none() | st.integers(1, 8),
)
@example(sizes=[13, 13, 11, 11, 9, 8, 7, 6, 6, 6], max_segments=3)
@settings(deadline=None)
def test_each_piece_once_within_the_limits_and_never_more_than_best_fit(
    sizes: list[int], max_segments: int | None
) -> None:
    sequences = pack_sizes("optimal", sizes, 30, max_segments=max_segments)
    documents = documents_of(sequences)
    assert sorted(chain.from_iterable(documents)) == list(range(len(sizes)))
    assert all(sum(sizes[i] for i in row) <= 30 for row in documents)
    assert all(1 <= len(row) <= (max_segments or 30) for row in documents)
    best_fit = pack_sizes("best-fit", sizes, 30, max_segments=max_segments)
    bound = lp_bound(counts_of(sizes, 30), 30, max_segments or 30)
    assert bound <= len(sequences) <= len(best_fit)
