"""Train WordPiece and WordLevel models: vocabularies of word pieces, and of whole words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.wordpiece import WordPieceOptions, learn_wordpiece
from tokenmill.vocabulary.training.lesson import Learned, Lesson, Vocabulary, alphabet_limit
from tokenmill.vocabulary.training.output import spelled
from tokenmill.vocabulary.training.tokenizer_json import (
    Json,
    compose,
    numbered,
    wordlevel_model,
    wordpiece_model,
)


def learn_word_pieces(lesson: Lesson, advance: Advance) -> Learned:
    """Learn the largest WordPiece vocabulary; smaller ones are its first tokens.

    Raises:
        UserError: the split is byte-level, or a vocabulary is too small for the characters.
    """
    unk = _unknown(lesson)
    options = lesson.options
    num_specials = len(lesson.specials)
    limits = WordPieceOptions(
        size=options.size - num_specials,
        min_frequency=options.vocabulary.min_frequency,
        limit_alphabet=alphabet_limit(lesson),
    )
    merges = learn_wordpiece(lesson.words, limits, advance)
    strings = merges.strings()
    smallest = min(options.size, *options.smaller_sizes, options.size)
    if smallest < len(merges.symbols) + num_specials:
        raise UserError(
            f"a vocabulary of {smallest:,} is too small",
            why=f"{len(merges.symbols):,} characters, inside and at the start of words, come first",
            hint="choose a larger --vocabulary, or --limit-alphabet 1000 like BERT",
        )
    sizes = [len(strings) + num_specials, *_smaller(lesson, len(strings))]
    return Learned(
        [_wordpiece(merges.cut(size - num_specials).strings(), lesson, unk) for size in sizes]
    )


def learn_whole_words(lesson: Lesson, advance: Advance) -> Learned:  # noqa: ARG001 - it is quick
    """Take the most frequent words; smaller vocabularies are the first of them.

    Raises:
        UserError: the split is byte-level, or a vocabulary has no room for words.
    """
    unk = _unknown(lesson)
    options = lesson.options
    smallest = min(options.size, *options.smaller_sizes, options.size)
    if smallest <= len(lesson.specials):
        raise UserError(
            f"a vocabulary of {smallest:,} is too small",
            why=f"it has {len(lesson.specials):,} special tokens",
            hint="choose a larger size",
        )
    words = most_frequent_words(
        lesson.words, options.size - len(lesson.specials), options.vocabulary.min_frequency
    )
    sizes = [len(words) + len(lesson.specials), *_smaller(lesson, len(words))]
    vocabularies = []
    for size in sizes:
        numbering = lesson.specials.numbered(size - len(lesson.specials))
        tokens = words[: size - len(lesson.specials)]
        vocab = numbered(numbering.special_ids, tokens, numbering.other_ids)
        files = _files(lesson, wordlevel_model(vocab, unk), numbering.special_ids)
        found = lesson.words.num_occurrences
        vocabularies.append(Vocabulary(size, numbering.special_ids, files, found))
    return Learned(vocabularies)


def most_frequent_words(words: WordCounts, size: int, min_frequency: int = 0) -> list[str]:
    """Return up to `size` words that occur at least `min_frequency` times, in the order of ids.

    The order is that of `tokenizers.trainers.WordLevelTrainer`: by count, then by code points.
    The words must come from a split that is not byte-level.
    """
    # Words are sorted, and UTF-8 sorts like code points; so a stable sort leaves ties in order.
    order = np.argsort(-words.counts, kind="stable")[:size]
    return [words.word(i).decode() for i in order if words.counts[i] >= min_frequency]


def _wordpiece(tokens: Sequence[str], lesson: Lesson, unk: str) -> Vocabulary:
    numbering = lesson.specials.numbered(len(tokens))
    vocab = numbered(numbering.special_ids, tokens, numbering.other_ids)
    files = _files(lesson, wordpiece_model(vocab, unk), numbering.special_ids)
    return Vocabulary(len(vocab), numbering.special_ids, files)


def _files(lesson: Lesson, model: Json, special_ids: dict[str, int]) -> dict[str, bytes]:
    tokenizer = compose(lesson.split, model, special_ids, lesson.specials.roles)
    return {"tokenizer.json": spelled(tokenizer)}


def _smaller(lesson: Lesson, num_tokens: int) -> list[int]:
    largest = num_tokens + len(lesson.specials)
    return [size for size in reversed(lesson.options.smaller_sizes) if size < largest]


def _unknown(lesson: Lesson) -> str:
    """Return the unknown token, which both models require."""
    if lesson.split.byte_level:
        raise UserError(
            f"a {lesson.options.vocabulary.model} model works on characters",
            why=f"the split {lesson.split.name!r} represents texts as bytes",
            hint="choose --split bert, whitespace or metaspace",
        )
    unk = lesson.specials.roles.get("unk")
    if unk is None:
        raise UserError("the model needs an unknown token", hint="name one: --unk '[UNK]'")
    return unk
