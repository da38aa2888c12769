"""Words to ids by the model of a tokenizer.json alone: no steps before it, no added tokens.

Words of byte-level tokenizers are merged by our own compiled loop, and some of them by the library
as well; all others are the library's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
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
from tokenmill.records import TokenBatch
from tokenmill.words.counts import WordCounts

Json = dict[str, Any]
Pair = tuple[str, str]
WORDS_AT_ONCE = 1 << 16
SAMPLE_WORDS = 10_000
"""Merged by the library, too: the most frequent ones, and others at equal distances."""
_SYMBOLS = dict(enumerate(byte_symbols()))


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
        self._whole_words = bool(document["model"].get("ignore_merges"))
        self._byte_level = byte_level

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of words that are spelled as tokens are, by the library.

        Raises:
            EngineError: the library failed.
        """
        starts = range(0, max(len(texts), 1), WORDS_AT_ONCE)
        return join_batches([self._library.encode(texts[i : i + WORDS_AT_ONCE]) for i in starts])

    def segment(self, words: WordCounts) -> TokenBatch:
        """The ids of every word.

        Raises:
            VerificationError: a word is no UTF-8.
            EngineError: the library failed, or differs from the compiled loop.
        """
        texts = spelled(words, self._byte_level)
        if not self._byte_level:
            return self.encode(texts)
        found = [self._tokens.get(symbol, -1) for symbol in byte_symbols()]
        symbols = np.array(found, np.int32)[words.data]
        if (symbols < 0).any():
            return self.encode(texts)
        batch = self._merged(texts, symbols, words)
        frequent = np.argsort(-words.counts, kind="stable")[: SAMPLE_WORDS // 2]
        others = np.arange(0, len(words), max(2 * len(words) // SAMPLE_WORDS, 1))
        sample = np.union1d(frequent, others)
        some = [texts[i] for i in sample]
        compare_tokens("the compiled merges", some, _chosen(batch, sample), self.encode(some))
        return batch

    def _merged(self, texts: list[str], symbols: Any, words: WordCounts) -> TokenBatch:
        offsets = np.array(words.offsets, np.int64)
        table = merge_table(self._tokens, self._merges)
        ids, ends = merge_words(symbols, offsets, table, np.uint64(0), np.uint64(0))
        batch = TokenBatch(ids.astype(np.uint32), ends)
        if not self._whole_words:
            return batch
        whole = [self._tokens.get(text, -1) for text in texts]
        return _with_whole_words(batch, np.array(whole, np.int64))


def spelled(words: WordCounts, byte_level: bool) -> list[str]:
    """Words as tokens are spelled.

    Raises:
        VerificationError: a word is no UTF-8.
    """
    data, edges = words.data.tobytes(), words.offsets.tolist()
    if byte_level:
        text = data.decode("latin-1").translate(_SYMBOLS)
        return [text[i:j] for i, j in itertools.pairwise(edges)]
    try:
        return [data[i:j].decode() for i, j in itertools.pairwise(edges)]
    except UnicodeDecodeError as error:
        raise VerificationError("a word of the counts is no text", why=str(error)) from error


def _with_whole_words(batch: TokenBatch, whole: Any) -> TokenBatch:
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


def _chosen(batch: TokenBatch, words: Any) -> TokenBatch:
    """The ids of some words."""
    is_chosen = np.zeros(len(batch.lengths), np.bool_)
    is_chosen[words] = True
    offsets = np.concatenate([[0], np.cumsum(batch.lengths[is_chosen])]).astype(np.int64)
    return TokenBatch(batch.ids[np.repeat(is_chosen, batch.lengths)], offsets)
