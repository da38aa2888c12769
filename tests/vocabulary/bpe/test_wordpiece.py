"""WordPiece against the library's trainer, which breaks ties in the order of a hash table."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import named_split
from tokenmill.vocabulary.bpe.wordpiece import WordPieceOptions, learn_wordpiece
from vocabulary.texts_kit import SYLLABLES, counted, made_up_lines

SPLIT = named_split("whitespace")


def by_the_library(texts: list[str], **options) -> set[str]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordPieceTrainer(special_tokens=[], show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return set(tokenizer.get_vocab())


def without_ties() -> list[str]:
    """Words with large random counts: no two pairs are as frequent as each other."""
    draw = random.Random(5)
    words = ["".join(draw.choices(syllables, k=k)) for syllables in SYLLABLES for k in (1, 2, 3)]
    return [word for word in words for _ in range(draw.randint(200, 1_500))]


@pytest.mark.parametrize(
    "options",
    [
        {"vocab_size": 60},
        {"vocab_size": 100, "min_frequency": 300},
        {"vocab_size": 70, "limit_alphabet": 18},
        {"vocab_size": 80, "initial_alphabet": ["☃"]},
    ],
)
def test_without_ties_it_is_the_library_s_vocabulary(options):
    texts = without_ties()
    ours = WordPieceOptions(
        size=options["vocab_size"],
        min_frequency=options.get("min_frequency", 0),
        limit_alphabet=options.get("limit_alphabet"),
        initial_alphabet="".join(options.get("initial_alphabet", [])),
    )
    found = learn_wordpiece(counted(texts, SPLIT), ours).strings()
    assert set(found) == by_the_library(texts, **options)
    assert len(found) == len(set(found))


def test_ties_are_broken_by_what_tokens_spell():
    words = WordCounts.of({b"ab": 3, b"ac": 3})
    found = learn_wordpiece(words, WordPieceOptions(size=6)).strings()
    assert found == ["a", "b", "c", "##b", "##c", "ab"]
    runs = {frozenset(by_the_library(["ab ac"] * 3, vocab_size=6)) for _ in range(4)}
    assert runs <= {frozenset([*found[:5], last]) for last in ("ab", "ac")}


def test_a_smaller_size_is_a_beginning():
    words = counted(made_up_lines(200), SPLIT)
    largest = learn_wordpiece(words, WordPieceOptions(size=400))
    smaller = learn_wordpiece(words, WordPieceOptions(size=300))
    assert largest.cut(300).strings() == smaller.strings() == largest.strings()[:300]


def test_no_token_is_longer_than_a_word_that_the_model_cuts():
    words = WordCounts.of({b"x" * 5_000: 2})
    found = learn_wordpiece(words, WordPieceOptions(size=300)).strings()
    assert 50 < max(len(token.removeprefix("##")) for token in found) <= 100
