"""The lower bound on sequences: never above the fewest there can be, and as published."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packing_kit import pack_sizes, seqpacker_lengths
from tokenmill.pack.figures import least_sequences

# Sequence length, the bound, and the tokens divided by the length, for 10,000 draws.
TABLE = [
    ("uniform", 512, 5128, 5122),
    ("uniform", 1024, 2561, 2561),
    ("uniform", 2048, 1281, 1281),
    ("lognormal", 512, 2471, 2471),
    ("lognormal", 1024, 1241, 1241),
    ("exponential", 512, 2230, 2230),
    ("exponential", 1024, 1228, 1228),
    ("bimodal", 512, 2194, 2185),
    ("bimodal", 1024, 1926, 1926),
]


def bound(sizes: list[int], length: int) -> int:
    return least_sequences(np.bincount(sizes, minlength=length + 1), length)


def fewest(sizes: list[int], length: int) -> int:
    """By trying everything: the first piece with every set of others that fits beside it."""

    @cache
    def of(left: tuple[int, ...]) -> int:
        if not left:
            return 0
        first, others = left[0], left[1:]
        best = len(left)
        for chosen in range(1 << len(others)):
            beside = [others[i] for i in range(len(others)) if chosen >> i & 1]
            if first + sum(beside) <= length:
                rest = tuple(others[i] for i in range(len(others)) if not chosen >> i & 1)
                best = min(best, 1 + of(rest))
        return best

    return of(tuple(sorted(sizes, reverse=True)))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 30).flatmap(
        lambda length: st.tuples(st.lists(st.integers(1, length), max_size=7), st.just(length))
    )
)
@example(([], 5))
@example(([1], 1))
@example(([4, 4, 4, 3, 3, 3], 10))
def test_the_bound_lies_between_the_tokens_and_the_fewest_sequences(
    case: tuple[list[int], int],
) -> None:
    sizes, length = case
    assert -(-sum(sizes) // length) <= bound(sizes, length) <= fewest(sizes, length)
    assert fewest(sizes, length) <= len(pack_sizes("best-fit", sizes, length))


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 60).flatmap(
        lambda length: st.tuples(st.lists(st.integers(1, length), max_size=60), st.just(length))
    )
)
def test_the_bound_is_the_best_over_all_thresholds(case: tuple[list[int], int]) -> None:
    sizes, length = case
    best = 0
    for threshold in range(length // 2 + 1):
        huge = [size for size in sizes if size > length - threshold]
        large = [size for size in sizes if length / 2 < size <= length - threshold]
        middle = [size for size in sizes if threshold <= size <= length / 2]
        left = sum(length - size for size in large)
        more = max(0, -(-(sum(middle) - left) // length))
        best = max(best, len(huge) + len(large) + more)
    assert bound(sizes, length) == best


def test_pieces_over_half_a_sequence_need_one_each() -> None:
    assert bound([5, 5, 5], 8) == 3
    assert bound([4, 4, 4], 8) == 2


def test_pieces_that_do_not_fit_beside_large_ones_are_counted_apart() -> None:
    # 27 tokens would go into three sequences of 10, but no 4 fits beside a 7.
    assert bound([7, 7, 4, 4, 4], 10) == 4


def test_millions_of_pieces_take_no_longer() -> None:
    histogram = np.zeros(1025, np.int64)
    histogram[[1, 500, 513, 1024]] = 10**12
    # 511 tokens are left beside every 513: a 500 fits there, and eleven pieces of 1.
    assert least_sequences(histogram, 1024) == 2 * 10**12


@pytest.mark.parametrize(("distribution", "length", "expected", "by_tokens"), TABLE)
def test_the_bound_on_the_draws_of_seqpacker(
    distribution: str, length: int, expected: int, by_tokens: int
) -> None:
    lengths = seqpacker_lengths(distribution)
    histogram = np.bincount(lengths[lengths <= length], minlength=length + 1)
    assert least_sequences(histogram, length) == expected
    assert -(-int(histogram @ np.arange(length + 1)) // length) == by_tokens
