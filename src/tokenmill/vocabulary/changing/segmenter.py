"""Words to ids by the model of a tokenizer.json alone: no steps before it, no added tokens.

Words of byte-level tokenizers are merged by our own compiled loop, and some of them by the library
as well; all others are the library's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from tokenmill.boundaries import join_batches
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.subword.merges import merge_table, merge_words
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.errors import VerificationError
from tokenmill.records import Int64Array, TokenBatch
from tokenmill.words.counts import WordCounts

Json = dict[str, Any]
Pair = tuple[str, str]
WORDS_AT_ONCE = 1 << 16
SAMPLE_WORDS = 10_000
"""Merged by the library, too: the most frequent ones, and others at equal distances."""
_SYMBOLS = dict(enumerate(byte_symbols()))
_BYTES = {symbol: byte for byte, symbol in _SYMBOLS.items()}


class Segmenter:
    """The model of a tokenizer.json."""

    def __init__(
        self, document: Json, merges: Sequence[Pair], origin: str, byte_level: bool
    ) -> None:
        """Raise a UserError where the library does not load it."""
        parts = (
            "normalizer",
            "pre_tokenizer",
            "post_processor",
            "decoder",
            "truncation",
            "padding",
        )
        bare = {**document, **dict.fromkeys(parts), "added_tokens": []}
        file = TokenizerFile("huggingface", msgspec.json.encode(bare), origin=origin)
        reference = HuggingFaceReference(file, control_tokens=False)
        self._library = Encoder(reference, reference.largest_id)
        self._tokens: dict[str, int] = document["model"]["vocab"]
        self._merges = merges
        self._takes_whole_words = bool(document["model"].get("ignore_merges"))
        self._byte_level = byte_level

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of words that are spelled as tokens are, by the library.

        Raises:
            EngineError: the library failed.
        """
        return self._library.encode(texts)

    def segment(self, words: WordCounts) -> TokenBatch:
        """The ids of every word.

        Raises:
            VerificationError: a word is no UTF-8.
            EngineError: the library failed, or differs from the compiled loop.
        """
        found = [self._tokens.get(symbol, -1) for symbol in byte_symbols()]
        of_byte = np.array(found, np.int32)
        if not self._byte_level or (of_byte[words.data] < 0).any():
            starts = range(0, max(len(words), 1), WORDS_AT_ONCE)
            return join_batches([self._encode_some(words, _from(words, i)) for i in starts])
        table = merge_table(self._tokens, self._merges)
        offsets = np.array(words.offsets, np.int64)
        none = np.uint64(0)
        ids, ends = merge_words(of_byte[words.data], offsets, table, none, none)
        batch = TokenBatch(ids.astype(np.uint32), ends)
        if self._takes_whole_words:
            batch = _with_whole_words(batch, self._whole_words(words))
        self._check_sample(words, batch)
        return batch

    def _encode_some(self, words: WordCounts, some: Iterable[int]) -> TokenBatch:
        return self.encode([self._spelled(words.word(i)) for i in some])

    def _check_sample(self, words: WordCounts, batch: TokenBatch) -> None:
        frequent = np.argsort(-words.counts, kind="stable")[: SAMPLE_WORDS // 2]
        others = np.arange(0, len(words), max(2 * len(words) // SAMPLE_WORDS, 1))
        sample = np.union1d(frequent, others)
        texts = [self._spelled(words.word(i)) for i in sample]
        compare_tokens("the compiled merges", texts, _chosen(batch, sample), self.encode(texts))

    def _spelled(self, word: bytes) -> str:
        """A word as tokens are spelled."""
        if self._byte_level:
            return word.decode("latin-1").translate(_SYMBOLS)
        try:
            return word.decode()
        except UnicodeDecodeError as error:
            raise VerificationError("a word of the counts is no text", why=str(error)) from error

    def _whole_words(self, words: WordCounts) -> Int64Array:
        """Shape (num_words,): the ids of words that are tokens, else -1."""
        by_bytes = {
            bytes(_BYTES[symbol] for symbol in token): token_id
            for token, token_id in self._tokens.items()
            if _BYTES.keys() >= set(token)
        }
        found = (by_bytes.get(words.word(i), -1) for i in range(len(words)))
        return np.fromiter(found, np.int64, len(words))


def _from(words: WordCounts, start: int) -> range:
    return range(start, min(start + WORDS_AT_ONCE, len(words)))


def _with_whole_words(batch: TokenBatch, whole: Int64Array) -> TokenBatch:
    """`whole`, shape (num_words,), holds the ids of words that are tokens, else -1."""
    first = np.zeros(len(batch.ids), np.bool_)
    first[batch.offsets[:-1]] = True
    is_whole = whole >= 0
    keep = first | ~np.repeat(is_whole, batch.lengths)
    ids = batch.ids.copy()
    ids[batch.offsets[:-1][is_whole]] = whole[is_whole]
    lengths = np.where(is_whole, 1, batch.lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenBatch(ids[keep], offsets)


def _chosen(batch: TokenBatch, words: Int64Array) -> TokenBatch:
    """The ids of some words."""
    is_chosen = np.zeros(len(batch.lengths), np.bool_)
    is_chosen[words] = True
    offsets = np.concatenate([[0], np.cumsum(batch.lengths[is_chosen])]).astype(np.int64)
    return TokenBatch(batch.ids[np.repeat(is_chosen, batch.lengths)], offsets)
