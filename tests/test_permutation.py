"""The permutation: each number once, in an order that seed and epoch decide, forever the same."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.kernels.permutation import BlockPermutation, Permutation


def order(n: int, seed: int = 0, epoch: int = 0) -> list[int]:
    return Permutation(n, seed, epoch)(np.arange(n)).tolist()


def test_the_order_never_changes() -> None:
    """Runs are resumed by place: another order would repeat data and miss some."""
    assert order(10) == [8, 3, 4, 9, 6, 5, 0, 2, 1, 7]


def test_the_order_of_many_never_changes() -> None:
    permutation = Permutation(2**40, seed=7, epoch=3)
    values = [806_828_371_226, 273_321_530_467, 782_437_398_522]
    assert permutation([0, 1, 2**40 - 1]).tolist() == values
    assert permutation.places(values).tolist() == [0, 1, 2**40 - 1]


@pytest.mark.parametrize("seed", [0, 1, 2**63, -1])
def test_every_number_stands_in_one_place(seed: int) -> None:
    for n in range(1, 201):
        permutation = Permutation(n, seed, epoch=n % 3)
        values = permutation(np.arange(n))
        assert sorted(values.tolist()) == list(range(n))
        assert permutation.places(values).tolist() == list(range(n))
        assert permutation(permutation.places(np.arange(n))).tolist() == list(range(n))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 2**63 - 1), st.integers(0, 2**64 - 1), st.integers(0, 1000), st.data())
@example(2**40, 0, 0, None)
@example(2**63 - 1, 0, 0, None)
@example(2**62 + 1, 0, 0, None)
def test_places_are_found_again_among_any_number(
    n: int, seed: int, epoch: int, data: st.DataObject | None
) -> None:
    places = [0, n // 2, n - 1]
    if data is not None:
        places += data.draw(st.lists(st.integers(0, n - 1), max_size=10))
    permutation = Permutation(n, seed, epoch)
    values = permutation(places)
    assert values.dtype == np.int64
    assert all(0 <= value < n for value in values.tolist())
    assert permutation.places(values).tolist() == places
    assert len(set(values.tolist())) == len(set(places))


def test_the_order_has_no_memory_of_the_former_one() -> None:
    values = Permutation(100_000, seed=0)(np.arange(100_000))
    places = np.arange(100_000)
    assert abs(np.corrcoef(places, values)[0, 1]) < 0.02
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02
    another = Permutation(100_000, seed=0, epoch=1)(places)
    assert abs(np.corrcoef(values, another)[0, 1]) < 0.02
    assert (values == places).sum() < 10
    assert (values == another).sum() < 10


# By blocks.


def by_blocks(
    n: int, block: int, at_once: int, seed: int = 0, epoch: int = 0, places: object = None
) -> list[int]:
    wanted = np.arange(n) if places is None else places
    return BlockPermutation(n, block, at_once, seed, epoch)(wanted).tolist()


def stretches(order: list[int], block: int, at_once: int) -> list[list[int]]:
    """The order in parts, each of which is all numbers of at most `at_once` blocks."""
    n, found = len(order), []
    short = n % block or block
    while order:
        for size in (at_once * block, (at_once - 1) * block + short):
            part = sorted(order[:size])
            blocks = sorted({value // block for value in part})
            whole = [v for b in blocks for v in range(b * block, min((b + 1) * block, n))]
            if len(blocks) <= at_once and part == whole:
                break
        else:
            raise AssertionError(f"{order[: at_once * block]} are no whole blocks")
        found.append(order[: len(part)])
        order = order[len(part) :]
    return found


def test_the_order_by_blocks_never_changes() -> None:
    assert by_blocks(11, block=3, at_once=2) == [9, 3, 10, 5, 4, 7, 2, 0, 8, 6, 1]
    large = BlockPermutation(2**40, block=1024, at_once=64, seed=7, epoch=3)
    values = [618_951_988_644, 550_857_603_229, 1_043_599_154_765]
    assert large([0, 1, 2**40 - 1]).tolist() == values


@settings(max_examples=300, deadline=None)
@given(
    n=st.integers(0, 300),
    block=st.integers(1, 320),
    at_once=st.integers(1, 12),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 5),
)
@example(n=12, block=4, at_once=3, seed=0, epoch=0)
@example(n=13, block=4, at_once=2, seed=0, epoch=0)
@example(n=1, block=1024, at_once=64, seed=0, epoch=0)
def test_every_number_stands_once_and_among_few_blocks(
    n: int, block: int, at_once: int, seed: int, epoch: int
) -> None:
    order = by_blocks(n, block, at_once, seed, epoch)
    assert sorted(order) == list(range(n))
    parts = stretches(order, block, at_once)
    assert len(parts) == ceil(ceil(n / block) / at_once)
    permutation = BlockPermutation(n, block, at_once, seed, epoch)
    assert permutation.places(order).tolist() == list(range(n))


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 300), block=st.integers(1, 20), at_once=st.integers(1, 5), data=st.data())
def test_any_places_of_the_order_by_blocks_can_be_asked_for(
    n: int, block: int, at_once: int, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    whole = by_blocks(n, block, at_once, seed=3)
    expected = [whole[place] for place in places]
    assert by_blocks(n, block, at_once, seed=3, places=places) == expected


@pytest.mark.parametrize("places", [[-1], [10], [0, 11]])
def test_places_that_do_not_exist_are_refused(places: list[int]) -> None:
    with pytest.raises(ValueError, match=r"numbers must be in \[0, 10\)"):
        BlockPermutation(10, 3, 2, seed=0)(places)
    with pytest.raises(ValueError, match=r"numbers must be in \[0, 10\)"):
        BlockPermutation(10, 3, 2, seed=0).places(places)
    with pytest.raises(ValueError, match=r"numbers must be in \[0, 10\)"):
        Permutation(10, seed=0)(places)


def test_blocks_meet_others_in_each_epoch() -> None:
    """Which blocks are shuffled together changes, and not only the order inside."""
    groups = {
        frozenset(frozenset(value // 5 for value in part) for part in stretches(order, 5, 3))
        for order in (by_blocks(60, 5, 3, seed=0, epoch=epoch) for epoch in range(10))
    }
    assert len(groups) == 10


def test_blocks_at_once_are_mixed_through_and_through() -> None:
    for part in stretches(by_blocks(4096, 64, 8), 64, 8):
        blocks = np.array(part) // 64
        changes = int((blocks[1:] != blocks[:-1]).sum())
        assert abs(changes - 511 * 7 / 8) < 40  # a standard deviation is about 8
        assert abs(np.corrcoef(part[1:], part[:-1])[0, 1]) < 0.2


@pytest.mark.parametrize("place", [0, 1, 17, 39])
def test_a_place_of_the_order_by_blocks_holds_any_number_about_equally_often(place: int) -> None:
    found = [by_blocks(40, 4, 3, seed, places=[place])[0] for seed in range(4000)]
    counts = np.bincount(found, minlength=40)
    assert ((counts - 100) ** 2 / 100).sum() < 95  # chi-square, 39 degrees: 1 in a million


@pytest.mark.parametrize("place", [0, 1, 17, 39])
def test_a_place_holds_any_of_many_numbers_about_equally_often(place: int) -> None:
    found = [int(Permutation(40, seed)([place])[0]) for seed in range(4000)]
    counts = np.bincount(found, minlength=40)
    assert ((counts - 100) ** 2 / 100).sum() < 95
