"""Arithmetic over sums and histograms, held to published values."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.core.records import Int64Array
from tokenmill.reports.tokenizers.figures import (
    RankPoint,
    Ratio,
    bits_per_byte_factor,
    code_bits,
    efficiency,
    gini,
    interval,
    percentile_frequency,
    rank_frequency,
    ratio,
    renyi_entropy,
    worst,
)

TEXT_1 = "pick @@ed pick @@l @@ed pick @@les"
TEXT_2 = "pick @@e @@d pick @@l @@e @@d pick @@l @@e @@s"


def counts_of(text: str) -> Int64Array:
    return np.array([0, *Counter(text.split()).values(), 0], np.int64)


@pytest.mark.parametrize(
    ("text", "renyi", "renyi_share", "shannon", "shannon_share", "bits"),
    [
        (
            TEXT_1,
            1.653012966845049,
            0.8265064834225245,
            1.8423709931771088,
            0.9211854965885544,
            14.0,
        ),
        (
            TEXT_2,
            2.1372977167241545,
            0.9204840242168808,
            2.2312702546075758,
            0.9609557933859342,
            25.541209043760983,
        ),
    ],
)
def test_entropies_are_those_of_the_scorer_of_zouhar_et_al(
    text: str, renyi: float, renyi_share: float, shannon: float, shannon_share: float, bits: float
) -> None:
    counts = counts_of(text)
    types = len(set(text.split()))
    assert renyi_entropy(counts) == pytest.approx(renyi, rel=1e-15)
    assert efficiency(renyi_entropy(counts), types) == pytest.approx(renyi_share, rel=1e-15)
    assert renyi_entropy(counts, 1) == pytest.approx(shannon, rel=1e-15)
    assert efficiency(renyi_entropy(counts, 1), types) == pytest.approx(shannon_share, rel=1e-15)
    assert code_bits(counts) == pytest.approx(bits, rel=1e-15)


def test_percentile_frequency_is_that_of_the_scorer() -> None:
    found = [
        percentile_frequency(counts_of(text), *bounds)
        for text in (TEXT_1, TEXT_2)
        for bounds in ((0.03, 0.83), (0.3, 0.6))
    ]
    expected = [0.857142857142857, 0.2857142857142857, 0.9090909090909092, 0.45454545454545453]
    assert found == pytest.approx(expected, rel=1e-15)


def test_the_curve_of_ranks_ends_with_the_last_token_that_occurs() -> None:
    counts = np.array([1, 0, 6, 2, 1], np.int64)
    assert rank_frequency(counts) == [
        RankPoint(1, 6, 0.6),
        RankPoint(2, 2, 0.8),
        RankPoint(4, 1, 1.0),
    ]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=12))
def test_gini_is_tokevals_double_sum(costs: list[int]) -> None:
    n, mean = len(costs), sum(costs) / len(costs)
    pairs = sum(abs(a - b) for a in costs for b in costs)
    expected = pairs / (2 * n * n * mean) if mean else 0.0
    assert gini(costs) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_the_worst_group_costs_most() -> None:
    assert worst({"b": 2.0, "a": 2.0, "c": 1.0}) == "a"
    assert worst({}) is None


def test_a_ratio_has_the_interval_of_its_samples() -> None:
    samples = np.arange(1, 101)
    found = ratio(np.array([50, *samples]), np.array([100, *[100] * 100]))
    assert found == Ratio(0.5, pytest.approx(0.03475), pytest.approx(0.97525))
    assert ratio(np.array([5, 1]), np.array([0, 1])) == Ratio(None)
    assert ratio(np.array([5, 1]), np.array([10, 0])) == Ratio(0.5)
    assert interval([2.0]) == Ratio(2.0)


def test_a_loss_of_one_bit_a_token_is_tokens_by_bytes_in_bits_per_byte() -> None:
    factor = bits_per_byte_factor(250, 1_000)
    assert factor is not None
    assert math.log(2) * factor == pytest.approx(0.25)
    assert bits_per_byte_factor(0, 0) is None
