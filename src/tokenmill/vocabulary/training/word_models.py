"""Train WordPiece and WordLevel models: vocabularies of word pieces, and of whole words.

WordPiece is BPE in which characters inside a word are spelled ##x.
`tokenizers.trainers.WordPieceTrainer` merges in the same way, but numbers the forms ##x in the
order of a hash table, and breaks ties between pairs by their ids. So its vocabulary differs from
run to run if pairs tie. Here the forms are sorted: the result is always the same, and one that the
library may return.

A word is encoded by repeatedly taking the longest matching token (as in BERT), not by merges. So
the merges are not part of the model, and do not give the number of tokens in the corpus.

M. Schuster, K. Nakajima: Japanese and Korean voice search, ICASSP 2012.
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions
from tokenmill.vocabulary.bpe.symbols import Alphabet, character_symbols
from tokenmill.vocabulary.training.tokenizer_json import (
    CONTINUATION,
    LONGEST_WORD_CHARACTERS,
    finished,
    wordlevel_model,
    wordpiece_model,
)
from tokenmill.vocabulary.training.training_input import (
    TrainedModel,
    TrainingInput,
    alphabet_limit,
)


def learn_word_pieces(given: TrainingInput, advance: Advance) -> TrainedModel:
    """Learn the largest WordPiece vocabulary; smaller ones are its first tokens.

    Raises:
        UserError: the split is byte-level, or a vocabulary is too small for the characters.
    """
    unk, num_specials = _unknown(given), len(given.specials)
    symbols = character_symbols(
        given.words, Alphabet(limit=alphabet_limit(given), prefix=CONTINUATION)
    )
    smallest = min(given.options.size, *given.options.smaller_sizes, given.options.size)
    if smallest < len(symbols) + num_specials:
        raise UserError(
            f"a vocabulary of {smallest:,} is too small",
            why=f"{len(symbols):,} characters, inside and at the start of words, come first",
            hint="choose a larger --vocabulary, or --limit-alphabet 1000 like BERT",
        )
    limits = MergeOptions(
        vocabulary_size=given.options.size - num_specials,
        min_frequency=given.options.vocabulary.min_frequency,
        # Longer tokens could never be used: the model makes longer words unknown.
        max_token_length=LONGEST_WORD_CHARACTERS + 1,
    )
    strings = learn_merges(given.words, symbols, limits, advance).strings()
    return TrainedModel(
        [
            finished(given, strings[: size - num_specials], lambda v: wordpiece_model(v, unk))
            for size in given.sizes(len(strings))
        ]
    )


def learn_whole_words(given: TrainingInput, advance: Advance) -> TrainedModel:  # noqa: ARG001
    """Take the most frequent words; smaller vocabularies are the first of them.

    Raises:
        UserError: the split is byte-level, or a vocabulary has no room for words.
    """
    unk, num_specials = _unknown(given), len(given.specials)
    smallest = min(given.options.size, *given.options.smaller_sizes, given.options.size)
    if smallest <= num_specials:
        raise UserError(
            f"a vocabulary of {smallest:,} is too small",
            why=f"it has {num_specials:,} special tokens",
            hint="choose a larger size",
        )
    min_frequency = given.options.vocabulary.min_frequency
    words = most_frequent_words(given.words, given.options.size - num_specials, min_frequency)
    found = given.words.num_occurrences
    return TrainedModel(
        [
            finished(given, words[: size - num_specials], lambda v: wordlevel_model(v, unk), found)
            for size in given.sizes(len(words))
        ]
    )


def most_frequent_words(words: WordCounts, size: int, min_frequency: int = 0) -> list[str]:
    """Return up to `size` words that occur at least `min_frequency` times, in the order of ids.

    The order is that of `tokenizers.trainers.WordLevelTrainer`: by count, then by code points.
    The words must come from a split that is not byte-level.
    """
    # Words are sorted, and UTF-8 sorts like code points; so a stable sort leaves ties in order.
    order = np.argsort(-words.counts, kind="stable")[:size]
    return [words.word(i).decode() for i in order if words.counts[i] >= min_frequency]


def _unknown(given: TrainingInput) -> str:
    """Return the unknown token, which both models require."""
    if given.split.byte_level:
        raise UserError(
            f"a {given.options.vocabulary.model} model works on characters",
            why=f"the split {given.split.name!r} represents texts as bytes",
            hint="choose --split bert, whitespace or metaspace",
        )
    unk = given.specials.roles.get("unk")
    if unk is None:
        raise UserError("the model needs an unknown token", hint="name one: --unk '[UNK]'")
    return unk
