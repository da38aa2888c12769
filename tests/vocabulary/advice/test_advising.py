"""A recommendation, what it rests on, and what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tokenmill.core.errors import UserError
from tokenmill.pack.costs import custom_shape
from tokenmill.vocabulary.advice.advise import advise
from tokenmill.vocabulary.advice.lengths import LengthCurve
from tokenmill.vocabulary.advice.scaling import (
    generic_size_of_least_flops,
    generic_tokens_per_character,
)
from tokenmill.vocabulary.advice.target import target_model

SMALL = target_model(parameters=85e6)


def english_like(characters: int = 10**9, scale: float = 1.0) -> LengthCurve:
    """A corpus as long as the generic curve says for a vocabulary `scale` times smaller."""
    sizes = np.arange(1000, 60_000)
    lengths = [round(characters * generic_tokens_per_character(size / scale)) for size in sizes]
    return LengthCurve(1000, np.array(lengths), characters, characters)


def test_the_median_of_three_is_rounded_up() -> None:
    advice = advise(SMALL)
    sizes = {approach.name: approach.size for approach in advice.approaches}
    assert sizes == {"IsoFLOPs": 8_436, "derivative": 9_029, "loss": 7_032}
    assert (advice.lowest, advice.recommended, advice.highest) == (7_032, 66 * 128, 9_029)
    assert advise(SMALL, multiple=1).recommended == 8_436


def test_a_corpus_like_english_moves_nothing() -> None:
    advice = advise(SMALL, english_like())
    measured = {approach.name: approach for approach in advice.approaches}
    assert measured["derivative, measured"].size == pytest.approx(9_029, rel=1e-3)
    assert not measured["derivative"].followed
    assert advice.recommended == 66 * 128


def test_a_corpus_with_more_words_asks_for_a_larger_vocabulary() -> None:
    corpus = english_like(scale=2.0)
    advice = advise(SMALL, corpus)
    least = corpus.size_of_least_flops(SMALL.parameters, SMALL.hidden_size)
    generic = generic_size_of_least_flops(SMALL.parameters, SMALL.hidden_size)
    assert least is not None
    assert least > 1.1 * generic
    found = {approach.name: approach.size for approach in advice.approaches}
    assert found["derivative, measured"] == round(9_029.0 * least / generic)
    assert advice.highest == found["derivative, measured"]


def test_a_curve_that_ends_too_early_is_not_followed() -> None:
    advice = advise(SMALL, LengthCurve(256, np.array([100, 90, 80]), 100, 100))
    assert [a.name for a in advice.approaches if a.followed] == ["IsoFLOPs", "derivative", "loss"]
    assert any("the end of its curve" in reason for reason in advice.reasons)


def test_rare_words_that_were_left_out_are_said() -> None:
    corpus = dataclasses.replace(english_like(), left_out_bytes=12_345)
    assert any("12,345 bytes of rare words" in reason for reason in advise(SMALL, corpus).reasons)


def test_costs_of_a_size_by_hand() -> None:
    shape = custom_shape(256, 2)
    advice = advise(
        target_model(model=shape), english_like(), sizes=[2000, 10_000], sequence_length=1024
    )
    costs = advice.sizes[[row.size for row in advice.sizes].index(10_000)]
    tokens = round(10**9 * generic_tokens_per_character(10_000))
    assert costs.tokens == tokens
    assert costs.tokens_per_character == tokens / 10**9
    assert costs.bytes_per_token == 10**9 / tokens
    assert costs.embedding_parameters == 2 * 10_000 * 256
    parameters = shape.non_vocabulary_parameters
    assert costs.embedding_share == 5_120_000 / (parameters + 5_120_000)
    attention = 12 * 2 * 256 * 1024
    assert costs.flops == pytest.approx(tokens * (6 * shape.weights(10_000) + attention))
    assert min(row.relative_flops for row in advice.sizes) == 1.0
    assert all(row.added_loss >= 0 for row in advice.sizes)


def test_a_size_beyond_the_curve_has_no_length() -> None:
    rows = advise(SMALL, english_like(), sizes=[500, 100_000]).sizes
    assert [(row.tokens is None, row.flops is None) for row in rows] == [
        (True, True),
        (False, False),
        (True, True),
    ]


def test_what_is_not_given_is_assumed_and_said() -> None:
    model = target_model(compute=1.6e17)
    assert model.parameters == pytest.approx(33e6, rel=0.02)
    assert len(model.assumptions) == 3
    given = target_model(parameters=1e9, compute=1e21, hidden_size=2048, tied=True)
    assert given.assumptions == ()


def test_more_compute_than_the_best_moves_the_third_approach_only() -> None:
    usual, more = advise(SMALL), advise(target_model(parameters=85e6, compute=1e20))
    sizes = [[a.size for a in advice.approaches] for advice in (usual, more)]
    assert sizes[0][:2] == sizes[1][:2]
    assert sizes[0][2] < sizes[1][2]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "without a model"),
        ({"model": "gpt2", "parameters": 1e9}, "cannot combine a model shape"),
        ({"parameters": 0.5}, "parameters must be a number of at least 1, got 0.5"),
        ({"parameters": 1e9, "compute": float("nan")}, "compute must be a number"),
        ({"model": "gpt9"}, "cannot find a model shape named 'gpt9'"),
    ],
)
def test_a_model_without_meaning_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        target_model(**given)


@pytest.mark.parametrize("options", [{"multiple": 0}, {"sizes": [0]}, {"sequence_length": 0}])
def test_numbers_below_one_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="must be at least 1"):
        advise(SMALL, **options)


@pytest.mark.parametrize(
    "given",
    [{"compute": 1}, {"model": "gpt2", "compute": 1}, {"parameters": 1, "hidden_size": 10**25}],
)
def test_a_model_of_next_to_nothing_has_a_token(given: dict[str, Any]) -> None:
    assert advise(target_model(**given)).lowest == 1
