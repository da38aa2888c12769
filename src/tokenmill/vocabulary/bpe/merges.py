"""Learnt merges: a vocabulary of every size up to theirs, and the corpus' length at each size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tokenmill.errors import UserError
from tokenmill.records import Int32Array, Int64Array
from tokenmill.vocabulary.bpe.symbols import Symbols


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """Limits of the merges, as in `tokenizers.trainers.BpeTrainer`."""

    vocabulary_size: int
    """Tokens in all: symbols (with special tokens, if they are among them) and merges."""
    min_frequency: int = 0
    """A pair that occurs less often is not merged; one that never occurs is never merged."""
    max_token_length: int | None = None
    """Tokens of more than two characters (bytes of byte-level words) are shorter than that. The
    library has "<" here, in spite of the name, and we follow it."""

    def __post_init__(self) -> None:
        limits = (self.vocabulary_size, self.min_frequency, self.max_token_length or 0)
        if min(limits) < 0 or max(limits) >= 1 << 31:
            raise UserError(
                "vocabulary size, minimal frequency and token length must be from 0 to 2^31 - 1",
                why=f"they are {', '.join(map(str, limits))}",
            )


@dataclass(frozen=True, slots=True)
class Merges:
    """Merges in the order in which they were learnt; the first k are a vocabulary as well."""

    symbols: Symbols
    pairs: Int32Array
    """Shape (num_merges, 2): ids of the parts; ids below `len(symbols)` are symbols."""
    ids: Int32Array
    """Shape (num_merges,): the token that a merge makes. They count up from `len(symbols)`, unless
    a merge spells a token that exists already: then it makes that one, and no new id is used."""
    masses: Int64Array
    """Shape (num_merges,): how often each merge was applied, over the whole corpus."""
    num_symbols_in_corpus: int
    """Tokens of the corpus before the first merge."""
    num_dropped: int = 0
    """Characters of the corpus that have no token."""

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def vocabulary_size(self) -> int:
        """Tokens: symbols and those that merges made."""
        return max(len(self.symbols), int(self.ids.max(initial=0)) + 1)

    def num_tokens(self, num_merges: int | None = None) -> int:
        """Tokens of the corpus after a number of merges, by default all."""
        return self.num_symbols_in_corpus - int(self.masses[:num_merges].sum())

    def corpus_lengths(self) -> Int64Array:
        """Tokens of the corpus after 0, 1, ... merges; shape (num_merges + 1,)."""
        return self.num_symbols_in_corpus - np.concatenate([[0], np.cumsum(self.masses)])

    def cut(self, vocabulary_size: int) -> Merges:
        """The merges of a smaller vocabulary: exactly those that training at that size learns."""
        news = self.ids >= max(len(self.symbols), vocabulary_size)
        kept = int(np.argmax(news)) if news.any() else len(self)
        return replace(
            self, pairs=self.pairs[:kept], ids=self.ids[:kept], masses=self.masses[:kept]
        )

    def strings(self) -> list[str]:
        """All tokens as a tokenizer.json spells them, in id order."""
        prefix = self.symbols.prefix
        strings = list(self.symbols.strings)
        for (left, right), token in zip(self.pairs.tolist(), self.ids.tolist(), strict=True):
            if token == len(strings):
                strings.append(strings[left] + strings[right].removeprefix(prefix))
        return strings

    def texts(self) -> list[bytes]:
        """The UTF-8 bytes of each token, in id order."""
        texts = list(self.symbols.texts)
        for (left, right), token in zip(self.pairs.tolist(), self.ids.tolist(), strict=True):
            if token == len(texts):
                texts.append(texts[left] + texts[right])
        return texts
