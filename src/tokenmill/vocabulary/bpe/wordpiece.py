"""WordPiece: the tokens of BPE whose characters inside a word are spelled ##x.

`tokenizers.trainers.WordPieceTrainer` merges in the same way, but numbers the forms ##x in the
order of a hash table, and of equally frequent pairs it takes the one with the smaller ids. So its
vocabulary differs from run to run, where pairs tie. Here the forms are sorted: the result is one of
those that it may give, always the same one.

A word is encoded by the longest token that it begins with (`WordPiece` of `tokenizers`, as BERT
does it), not by merges, so the merges are not part of the model and do not tell its length.

M. Schuster, K. Nakajima: Japanese and Korean voice search, ICASSP 2012.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.records import Advance
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import Alphabet, character_symbols
from tokenmill.words.counts import WordCounts

CONTINUING_PREFIX = "##"
MAX_TOKEN_CHARACTERS = 100
"""Longer tokens could never be used: the model makes longer words unknown, as BERT does. The
library learns them all the same, 4,000 characters long where a corpus repeats one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPieceOptions:
    """As in `tokenizers.trainers.WordPieceTrainer`; special tokens do not count."""

    size: int
    min_frequency: int = 0
    limit_alphabet: int | None = None
    """Characters at most; BERT's trainer has 1,000. Words with others become unknown."""
    initial_alphabet: str = ""


def learn_wordpiece(
    words: WordCounts, options: WordPieceOptions, advance: Advance | None = None
) -> Merges:
    """Learn a vocabulary: `strings()` of the result, in the order of ids.

    `cut(size)` gives the vocabulary that training at a smaller size does. Words are characters:
    they come from a split that is not byte-level.

    Raises:
        UserError: the counts are so large that sums of them could overflow.
    """
    alphabet = Alphabet(
        limit=options.limit_alphabet, initial=options.initial_alphabet, prefix=CONTINUING_PREFIX
    )
    limits = MergeOptions(
        vocabulary_size=options.size,
        min_frequency=options.min_frequency,
        max_token_length=MAX_TOKEN_CHARACTERS + 1,
    )
    return learn_merges(words, character_symbols(words, alphabet), limits, advance)
