"""Sizes by Tao et al., against the numbers that their own program prints."""

from __future__ import annotations

import pytest

from tokenmill.vocabulary.advice.scaling import (
    generic_size_of_least_flops,
    generic_tokens_per_character,
    loss,
    optimal_compute,
    optimal_parameters,
    size_by_derivative,
    size_by_isoflops,
    size_by_loss,
    usual_hidden_size,
)

TABLE = {
    33e6: (5_755, 6_144, 4_662),
    85e6: (8_436, 9_029, 7_032),
    151e6: (13_612, 14_592, 11_549),
    302e6: (18_183, 19_528, 15_759),
    631e6: (22_391, 24_094, 19_853),
    1.13e9: (27_280, 29_401, 24_631),
    2.87e9: (37_942, 40_993, 35_272),
    3e9: (39_368, 42_539, 36_648),
    7e9: (62_281, 67_450, 59_548),
    13e9: (83_429, 90_504, 81_347),
    30e9: (141_711, 154_071, 141_899),
    70e9: (211_860, 230_861, 217_961),
    130e9: (236_501, 258_138, 248_188),
    300e9: (355_894, 389_324, 383_659),
}
"""Sizes by approaches 1, 2 and 3, for non-vocabulary parameters."""


@pytest.mark.parametrize("parameters", TABLE)
def test_the_three_approaches_are_the_authors(parameters: float) -> None:
    hidden_size = usual_hidden_size(parameters)
    assert TABLE[parameters] == (
        size_by_isoflops(parameters, hidden_size),
        size_by_derivative(parameters, hidden_size),
        size_by_loss(parameters, hidden_size, optimal_compute(parameters)),
    )


def test_the_paper_prints_them_rounded_to_thousands() -> None:
    assert [round(size / 1000) for size in TABLE[3e9]] == [39, 43, 37]
    assert [round(size / 1000) for size in TABLE[70e9]] == [212, 231, 218]


@pytest.mark.parametrize(
    ("size", "tokens_per_character"),
    [
        (4096, 0.33182), (8192, 0.29901), (16384, 0.27233), (32000, 0.2524), (50257, 0.2422),
        (65536, 0.23741), (100000, 0.23166), (128256, 0.22933), (200000, 0.22716),
        (500000, 0.22716),
    ],
)  # fmt: skip
def test_the_generic_curve(size: int, tokens_per_character: float) -> None:
    assert generic_tokens_per_character(size) == pytest.approx(tokens_per_character, abs=5e-6)


@pytest.mark.parametrize(
    ("parameters", "hidden_size"),
    [
        (1e6, 512), (50e6, 512), (50e6 + 1, 768), (200e6, 768), (500e6, 1024), (1e9, 1536),
        (2e9, 2048), (5e9, 3200), (10e9, 4096), (20e9, 5120), (50e9, 6048), (100e9, 8192),
        (200e9, 12288), (500e9, 16384), (1e12, 20480), (2e12, 24576),
    ],
)  # fmt: skip
def test_hidden_sizes_are_steps(parameters: float, hidden_size: int) -> None:
    assert usual_hidden_size(parameters) == hidden_size


@pytest.mark.parametrize(("parameters", "size"), [(33e6, 10_322.9), (2.87e9, 65_928)])
def test_sizes_of_least_flops_are_the_authors(parameters: float, size: float) -> None:
    found = generic_size_of_least_flops(parameters, usual_hidden_size(parameters))
    assert found == pytest.approx(size, rel=1e-5)


def test_the_generic_curve_ends_at_its_largest_size() -> None:
    assert generic_size_of_least_flops(1e15, 24576) == pytest.approx(200_000)


def test_compute_and_parameters_are_inverse() -> None:
    assert optimal_parameters(optimal_compute(1.13e9)) == pytest.approx(1.13e9)


@pytest.mark.parametrize("parameters", [33e6, 1.13e9, 70e9])
def test_approach_3_is_where_the_loss_is_least(parameters: float) -> None:
    hidden_size, flops = usual_hidden_size(parameters), optimal_compute(parameters)
    best = size_by_loss(parameters, hidden_size, flops)
    losses = {size: loss(parameters, hidden_size, flops, size) for size in (best // 2, best * 2)}
    assert loss(parameters, hidden_size, flops, best) < min(losses.values())


def test_less_compute_than_the_best_asks_for_a_smaller_vocabulary() -> None:
    """The paper's 3B models: too little data 37K -> smaller, too much -> larger."""
    sizes = [
        size_by_loss(2.87e9, 3200, factor * optimal_compute(2.87e9)) for factor in (0.1, 1, 10)
    ]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3
