"""Encode words with only the model of a tokenizer.json, without its other steps or added tokens.

Byte-level BPE runs in tokenmill's compiled loop, which `ModelAlone.check` compares with the
library. The library encodes everything else.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.boundaries import join_batches, offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols, bytes_by_symbol
from tokenmill.encode.engine import Encoder
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import Json, merges_of
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import split_of
from tokenmill.kernels.merges import MergeTable, merge_table, merge_words

WORDS_AT_ONCE = 1 << 16
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
NOT_MERGED = ("continuing_subword_prefix", "end_of_word_suffix", "dropout")
"""BPE options that the compiled loop does not support."""
_SYMBOLS = dict(enumerate(byte_symbols()))


class ModelAlone:
    """The model of a tokenizer.json."""

    def __init__(self, document: Json, origin: str) -> None:
        """Raise a UserError if the library cannot load the model."""
        bare = {**document, **dict.fromkeys(PARTS), "added_tokens": []}
        file = TokenizerFile("huggingface", msgspec.json.encode(bare), origin=origin)
        reference = HuggingFaceReference(file, control_tokens=False)
        self._library = Encoder(reference, reference.largest_id)
        self._model: Json = document["model"]
        self._byte_level = split_of(document).byte_level
        vocab = self._model["vocab"]
        self._table: MergeTable | None = None
        if self._byte_level and "merges" in self._model:
            found = [vocab.get(symbol, -1) for symbol in byte_symbols()]
            self._symbols = np.array(found, np.int32)
            if not any(self._model.get(name) for name in NOT_MERGED):
                self._table = merge_table(vocab, merges_of(self._model))

    @property
    def is_compiled(self) -> bool:
        """Whether the compiled loop encodes words, if all their bytes are tokens."""
        return self._table is not None

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Encode words, spelled like tokens, with the library.

        Raises:
            EngineError: the library failed.
        """
        return self._library.encode(texts)

    def segment(self, words: WordCounts) -> TokenBatch:
        """Return the ids of every word.

        Raises:
            VerificationError: a word is not valid UTF-8.
            EngineError: the library failed.
        """
        symbols = None if self._table is None else self._symbols[words.data]
        if self._table is None or symbols is None or (symbols < 0).any():
            starts = range(0, len(words), WORDS_AT_ONCE)
            spans = [range(i, min(i + WORDS_AT_ONCE, len(words))) for i in starts]
            return join_batches(
                [self.encode([self._spelled(words.word(i)) for i in span]) for span in spans]
            )
        offsets = np.array(words.offsets, np.int64)
        ids, ends = merge_words(symbols, offsets, self._table)
        batch = TokenBatch(ids.astype(np.uint32), ends)
        if self._model.get("ignore_merges"):
            return _with_whole_words(batch, self._whole_words(words))
        return batch

    def check(self, words: WordCounts, num_words: int) -> None:
        """Compare the compiled loop with the library on about `num_words` words.

        Half of them are the most frequent words; the others are spread evenly.

        Raises:
            EngineError: the ids differ.
        """
        if not self.is_compiled:
            return
        frequent = np.argsort(-words.counts, kind="stable")[: num_words // 2]
        others = np.arange(0, len(words), max(2 * len(words) // num_words, 1))
        some = words.select(np.union1d(frequent, others))
        texts = [self._spelled(some.word(i)) for i in range(len(some))]
        compare_tokens("the compiled merges", texts, self.segment(some), self.encode(texts))

    def _spelled(self, word: bytes) -> str:
        """Spell a word like a token."""
        if self._byte_level:
            return word.decode("latin-1").translate(_SYMBOLS)
        try:
            return word.decode()
        except UnicodeDecodeError as error:
            what = "a counted word is not valid UTF-8"
            raise VerificationError(what, why=str(error)) from error

    def _whole_words(self, words: WordCounts) -> Int64Array:
        """Return the ids of words that are tokens, else -1; shape (num_words,)."""
        values = bytes_by_symbol()
        by_bytes = {
            bytes(values[symbol] for symbol in token): token_id
            for token, token_id in self._model["vocab"].items()
            if values.keys() >= set(token)
        }
        found = (by_bytes.get(words.word(i), -1) for i in range(len(words)))
        return np.fromiter(found, np.int64, len(words))


def _with_whole_words(batch: TokenBatch, whole: Int64Array) -> TokenBatch:
    """Replace the ids of words that are tokens; `whole` is the result of `_whole_words`."""
    first = np.zeros(len(batch.ids), np.bool_)
    first[batch.offsets[:-1]] = True
    is_whole = whole >= 0
    keep = first | ~np.repeat(is_whole, batch.lengths)
    ids = batch.ids.copy()
    ids[batch.offsets[:-1][is_whole]] = whole[is_whole]
    return TokenBatch(ids[keep], offsets_from_lengths(np.where(is_whole, 1, batch.lengths)))
