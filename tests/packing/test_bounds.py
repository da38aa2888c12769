"""The lower bound on sequences: never above the fewest there can be, and as published."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packing_kit import pack_sizes
from tokenmill.packing.figures import least_sequences

# Sequence length, the bound, and the tokens divided by the length, for 10,000 draws.


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


@settings(max_examples=100, deadline=None)
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


@settings(max_examples=100, deadline=None)
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
