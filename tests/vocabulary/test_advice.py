"""Sizes by Tao et al., lengths of a corpus at every size, and a recommendation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenmill.core.errors import UserError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.packing.costs import custom_shape
from tokenmill.vocabulary.advice.advise import advise, target_model
from tokenmill.vocabulary.advice.lengths import LengthCurve, measure_lengths
from tokenmill.vocabulary.advice.scaling import (
    generic_size_of_least_flops,
    generic_tokens_per_character,
    optimal_compute,
    size_by_derivative,
    size_by_isoflops,
    size_by_loss,
    usual_hidden_size,
)

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


def test_what_is_not_given_is_assumed_and_said() -> None:
    model = target_model(compute=1.6e17)
    assert model.parameters == pytest.approx(33e6, rel=0.02)
    assert len(model.assumptions) == 3
    given = target_model(parameters=1e9, compute=1e21, hidden_size=2048, tied=True)
    assert given.assumptions == ()


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


WORDS = {" low": 5, " lower": 2, " newest": 6, " widest": 3, " añañ": 4}
COUNTS = WordCounts.of({word.encode(): count for word, count in WORDS.items()})
TEXT = "".join(word * count for word, count in WORDS.items())


@pytest.mark.parametrize("size", [256, 257, 260, 265, 270])
def test_the_length_is_that_of_a_tokenizer_trained_at_that_size(size: int) -> None:
    curve = measure_lengths(COUNTS, byte_level=True, largest_size=270)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    assert curve.at(size) == len(tokenizer.encode(TEXT).ids)


def test_a_curve_begins_with_symbols_and_ends_with_whole_words() -> None:
    by_bytes = measure_lengths(COUNTS, byte_level=True, largest_size=1000)
    by_characters = measure_lengths(COUNTS, byte_level=False, largest_size=1000)
    assert (by_bytes.smallest_size, by_bytes.at(256)) == (256, len(TEXT.encode()))
    assert (by_characters.smallest_size, by_characters.at(len(set(TEXT)))) == (
        len(set(TEXT)),
        len(TEXT),
    )
    assert by_bytes.tokens[-1] == by_characters.tokens[-1] == sum(WORDS.values())
    assert by_bytes.at(255) is None
    assert by_bytes.at(by_bytes.largest_size + 1) is None


@pytest.mark.parametrize(
    ("parameters", "hidden_size", "best"),
    [
        (0, 1, 12),  # 12 x 20 is less than 11 x 30 and 13 x 19
        (100, 20, 12),  # (100 + 20 x 12) x 20 is less than (100 + 20 x 13) x 19
        (10**9, 1, None),  # longer vocabularies only help
    ],
)
def test_the_size_of_least_flops(parameters: int, hidden_size: int, best: int | None) -> None:
    curve = LengthCurve(10, np.array([40, 30, 20, 19]), 100, 100)
    assert curve.size_of_least_flops(parameters, hidden_size) == best


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


@pytest.mark.parametrize(("parameters", "size"), [(33e6, 10_322.9), (2.87e9, 65_928)])
def test_sizes_of_least_flops_are_the_authors(parameters: float, size: float) -> None:
    found = generic_size_of_least_flops(parameters, usual_hidden_size(parameters))
    assert found == pytest.approx(size, rel=1e-5)
