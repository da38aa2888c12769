"""WordPiece and WordLevel against the trainers of the library."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import named_split
from tokenmill.vocabulary.training.options import make_train_options
from tokenmill.vocabulary.training.special_tokens import SpecialTokens
from tokenmill.vocabulary.training.training_input import TrainingInput
from tokenmill.vocabulary.training.word_models import learn_word_pieces, most_frequent_words
from vocabulary.texts_kit import SYLLABLES, counted, made_up_lines

SPLIT = named_split("whitespace")


def word_pieces(words: WordCounts, size: int, **options: Any) -> list[list[str]]:
    """Tokens of each vocabulary without the unknown token, in the order of their ids."""
    chosen = make_train_options({"model": "wordpiece", "vocabulary": size + 1, **options})
    specials = SpecialTokens(("[UNK]",), {"unk": "[UNK]"})
    found = learn_word_pieces(
        TrainingInput(words, {"": words}, {"": 1}, SPLIT, chosen, specials), lambda *_: None
    )
    files = [json.loads(each.files["tokenizer.json"]) for each in found.vocabularies]
    return [list(file["model"]["vocab"])[1:] for file in files]


def by_the_library(texts: list[str], **options: Any) -> set[str]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(special_tokens=[], show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return set(tokenizer.get_vocab())


@pytest.mark.parametrize(
    ("size", "options"), [(60, {}), (100, {"min_frequency": 300}), (70, {"limit_alphabet": 18})]
)
def test_without_ties_it_is_the_library_s_vocabulary(size: int, options: dict[str, Any]) -> None:
    draw = random.Random(5)
    words = ["".join(draw.choices(syllables, k=k)) for syllables in SYLLABLES for k in (1, 2, 3)]
    texts = [word for word in words for _ in range(draw.randint(200, 1_500))]
    (found,) = word_pieces(counted(texts, SPLIT), size, **options)
    assert set(found) == by_the_library(texts, vocab_size=size, **options)
    assert len(found) == len(set(found))


def test_ties_are_broken_by_what_tokens_spell() -> None:
    (found,) = word_pieces(WordCounts.of({b"ab": 3, b"ac": 3}), 6)
    assert found == ["a", "b", "c", "##b", "##c", "ab"]
    runs = {frozenset(by_the_library(["ab ac"] * 3, vocab_size=6)) for _ in range(4)}
    assert runs <= {frozenset([*found[:5], last]) for last in ("ab", "ac")}


def test_a_smaller_size_is_a_beginning() -> None:
    words = counted(made_up_lines(200), SPLIT)
    largest, smaller = word_pieces(words, 400, sizes=[301])
    assert word_pieces(words, 300) == [smaller] == [largest[:300]]


def test_no_token_is_longer_than_a_word_that_the_model_cuts() -> None:
    (found,) = word_pieces(WordCounts.of({b"x" * 5_000: 2}), 300)
    assert 50 < max(len(token.removeprefix("##")) for token in found) <= 100


@settings(max_examples=50)
@given(
    st.dictionaries(st.text("aбと😀", min_size=1, max_size=3), st.integers(1, 4), min_size=1),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_words_are_those_of_the_library_in_its_order(
    counts: dict[str, int], size: int, min_frequency: int
) -> None:
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(
        vocab_size=size, min_frequency=min_frequency, special_tokens=[], show_progress=False
    )
    tokenizer.train_from_iterator([f"{word} " * n for word, n in counts.items()], trainer)
    vocab = tokenizer.get_vocab()
    words = WordCounts.of({word.encode(): count for word, count in counts.items()})
    assert most_frequent_words(words, size, min_frequency) == sorted(vocab, key=vocab.__getitem__)


def test_counts_beyond_32_bits_are_in_order() -> None:
    words = WordCounts.of({b"a": 2**40, b"b": 2**40 + 1, b"c": 2**62})
    assert most_frequent_words(words, 3) == ["c", "b", "a"]
