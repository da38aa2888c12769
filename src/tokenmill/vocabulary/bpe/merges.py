"""Learned merges: they give a vocabulary of every smaller size, and encode words."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.merges import MergeTable, merge_words
from tokenmill.kernels.pair_table import pair_table
from tokenmill.vocabulary.bpe.symbols import SegmentedWords, Symbols

NO_DROPOUT = np.uint64(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """The limits of the merges, as in `tokenizers.trainers.BpeTrainer`."""

    vocabulary_size: int
    """The number of tokens: symbols, which may include special tokens, and merges."""
    min_frequency: int = 0
    """Pairs with fewer occurrences are not merged; at least 1 is required in any case."""
    max_token_length: int | None = None
    """Tokens of more than two characters (or bytes, for byte level) must be shorter than this. As
    in the library, and despite the name, this length itself is not allowed."""

    def __post_init__(self) -> None:
        limits = (self.vocabulary_size, self.min_frequency, self.max_token_length or 0)
        if min(limits) < 0 or max(limits) >= 1 << 31:
            raise UserError(
                "vocabulary size, minimum frequency and token length must be from 0 to 2^31 - 1",
                why=f"got {', '.join(map(str, limits))}",
            )


@dataclass(frozen=True, slots=True)
class Merges:
    """Merges in the order they were learned; the first k are also a vocabulary."""

    symbols: Symbols
    pairs: Int32Array
    """Shape (num_merges, 2): the ids of the two parts; ids below `len(symbols)` are symbols."""
    ids: Int32Array
    """Shape (num_merges,): the token that each merge produces. New ids count up from
    `len(symbols)`; a merge that spells an existing token produces that token."""
    masses: Int64Array
    """Shape (num_merges,): how often each merge was applied in the whole corpus."""
    num_symbols_in_corpus: int
    """The number of tokens in the corpus before the first merge."""
    num_dropped: int = 0
    """The number of characters in the corpus without a token."""

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens: symbols and merges."""
        return max(len(self.symbols), int(self.ids.max(initial=0)) + 1)

    def num_tokens(self, num_merges: int | None = None) -> int:
        """Return the number of tokens in the corpus after some merges, by default all."""
        return self.num_symbols_in_corpus - int(self.masses[:num_merges].sum())

    def corpus_lengths(self) -> Int64Array:
        """Return the tokens in the corpus after 0, 1, ... merges, shape (num_merges + 1,)."""
        return self.num_symbols_in_corpus - np.concatenate([[0], np.cumsum(self.masses)])

    def cut(self, vocabulary_size: int) -> Merges:
        """Return the merges of a smaller vocabulary: the same as when training at that size."""
        news = self.ids >= max(len(self.symbols), vocabulary_size)
        kept = int(np.argmax(news)) if news.any() else len(self)
        return replace(
            self, pairs=self.pairs[:kept], ids=self.ids[:kept], masses=self.masses[:kept]
        )

    def strings(self) -> list[str]:
        """Return all tokens as spelled in a tokenizer.json, in id order."""
        prefix = self.symbols.prefix
        strings = list(self.symbols.strings)
        for (left, right), token in zip(self.pairs.tolist(), self.ids.tolist(), strict=True):
            if token == len(strings):
                strings.append(strings[left] + strings[right].removeprefix(prefix))
        return strings

    def texts(self) -> list[bytes]:
        """Return the UTF-8 bytes of each token, in id order."""
        texts = list(self.symbols.texts)
        for (left, right), token in zip(self.pairs.tolist(), self.ids.tolist(), strict=True):
            if token == len(texts):
                texts.append(texts[left] + texts[right])
        return texts

    def segment(self, words: SegmentedWords) -> SegmentedWords:
        """Apply the merges to words of symbols: all merges to one word at a time, like an encoder.

        Training applies one merge to all words at a time.
        """
        lefts, rights = (np.ascontiguousarray(side) for side in self.pairs.T)
        # Of merges that join the same pair, the last one wins, as in the library.
        table = pair_table(lefts, rights, np.arange(len(self), dtype=np.int32))
        ids, offsets = merge_words(
            words.ids, words.offsets.copy(), MergeTable(table, self.ids), NO_DROPOUT, NO_DROPOUT
        )
        return SegmentedWords(ids, offsets, words.counts, words.num_fixed, words.num_dropped)
