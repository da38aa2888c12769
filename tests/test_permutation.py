"""The permutation: each number once, in an order that seed and epoch decide, forever the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenmill.permutation import Permutation, keyed_hash


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


def test_single_places_agree_with_all_at_once() -> None:
    permutation = Permutation(100, seed=5)
    whole = permutation(np.arange(100)).tolist()
    assert [int(permutation([place])[0]) for place in range(100)] == whole
    assert permutation([3, 3, 99]).tolist() == [whole[3], whole[3], whole[99]]


def test_nothing_and_one_number_are_permuted_too() -> None:
    assert Permutation(0, seed=1)([]).tolist() == []
    assert order(1, seed=1) == [0]
    assert Permutation(5, seed=1)([]).tolist() == []


def test_another_seed_or_epoch_is_another_order() -> None:
    orders = {tuple(order(50, seed, epoch)) for seed in range(20) for epoch in range(20)}
    assert len(orders) == 400
    assert order(50, 3, 4) == order(50, 3, 4)


def test_seed_and_epoch_do_not_stand_in_for_each_other() -> None:
    assert order(50, seed=1, epoch=2) != order(50, seed=2, epoch=1)
    assert order(50, seed=0, epoch=1) != order(50, seed=1, epoch=0)


def test_orders_of_three_are_about_equally_frequent() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(6000):
        found = tuple(order(3, seed))
        counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 6
    # 1000 each are expected; a standard deviation is 29.
    assert all(850 < count < 1150 for count in counts.values())


def test_a_place_holds_any_number_about_equally_often() -> None:
    values = np.array([Permutation(10, seed)([0, 9]) for seed in range(5000)])
    for place in (0, 1):
        counts = np.bincount(values[:, place], minlength=10)
        assert counts.min() > 400
        assert counts.max() < 600


def test_the_order_has_no_memory_of_the_former_one() -> None:
    values = Permutation(100_000, seed=0)(np.arange(100_000))
    places = np.arange(100_000)
    assert abs(np.corrcoef(places, values)[0, 1]) < 0.02
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02
    another = Permutation(100_000, seed=0, epoch=1)(places)
    assert abs(np.corrcoef(values, another)[0, 1]) < 0.02
    assert (values == places).sum() < 10
    assert (values == another).sum() < 10


def test_numbers_of_a_block_are_spread_over_the_whole() -> None:
    values = Permutation(2**20, seed=0)(np.arange(2**12))
    counts = np.bincount(values >> 16, minlength=16)
    assert counts.min() > 180  # 256 are expected, with a standard deviation of 16
    assert counts.max() < 332


def test_hashes_depend_on_value_and_key() -> None:
    values = np.arange(1000, dtype=np.uint64)
    hashes = {key: keyed_hash(values, key) for key in (0, 1, 2**64 - 1)}
    assert len(set(np.concatenate(list(hashes.values())).tolist())) == 3000
    assert keyed_hash(values, 2**64).tolist() == hashes[0].tolist()
    assert keyed_hash(values, -1).tolist() == hashes[2**64 - 1].tolist()


def test_hashes_as_fractions_are_uniform() -> None:
    fractions = keyed_hash(np.arange(100_000, dtype=np.uint64), 5) / 2.0**64
    assert abs(fractions.mean() - 0.5) < 0.005
    counts = np.bincount((fractions * 10).astype(int), minlength=10)
    assert counts.min() > 9_500
    assert counts.max() < 10_500
