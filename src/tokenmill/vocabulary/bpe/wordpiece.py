"""Learn WordPiece vocabularies: BPE in which characters inside a word are spelled ##x.

`tokenizers.trainers.WordPieceTrainer` merges in the same way, but numbers the forms ##x in the
order of a hash table, and breaks ties between pairs by their ids. So its vocabulary differs from
run to run if pairs tie. Here the forms are sorted: the result is always the same, and one that the
library may return.

A word is encoded by repeatedly taking the longest matching token (as in BERT), not by merges. So
the merges are not part of the model, and do not give the number of tokens in the corpus.

M. Schuster, K. Nakajima: Japanese and Korean voice search, ICASSP 2012.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.core.records import Advance
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions, Merges
from tokenmill.vocabulary.bpe.symbols import Alphabet, character_symbols

CONTINUING_PREFIX = "##"
MAX_TOKEN_CHARACTERS = 100
"""Longer tokens could never be used, because the model makes longer words unknown, like BERT. The
library still learns them, up to 4,000 characters long if a corpus repeats one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordPieceOptions:
    """The options of `tokenizers.trainers.WordPieceTrainer`; `size` excludes special tokens."""

    size: int
    min_frequency: int = 0
    limit_alphabet: int | None = None
    """The maximum number of characters; words with others become unknown. BERT has 1,000."""
    initial_alphabet: str = ""


def learn_wordpiece(
    words: WordCounts, options: WordPieceOptions, advance: Advance | None = None
) -> Merges:
    """Learn a vocabulary from words of a split that is not byte-level.

    Returns:
        The merges: `strings()` is the vocabulary, and `cut(size)` a smaller one.

    Raises:
        UserError: the counts are so large that their sum could overflow.
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
