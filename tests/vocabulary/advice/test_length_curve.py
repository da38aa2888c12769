"""One training gives the length of a corpus at every size."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.advice.lengths import LengthCurve, count_characters, measure_lengths

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


def test_characters_are_counted_with_their_words() -> None:
    assert count_characters(COUNTS) == len(TEXT)


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
