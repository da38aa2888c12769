"""Models over the words of BERT's normalizer and pre-tokenizer, in compiled code.

    new chunks ─normalized_words─▶ words ─longest pieces─▶ ids           WordPiece and WordLevel
                                         ─symbols─▶ ─merges─▶ ids        BPE with an end-of-word
                                                                         suffix (GPT)

A WordLevel model is a WordPiece model without later pieces: a word is either a token or unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tokenmill.core.records import (
    BoolArray,
    Int32Array,
    Int64Array,
    TokenBatch,
    UInt8Array,
)
from tokenmill.encode.engines.native.byte_bpe import chunks_with, gathered
from tokenmill.encode.engines.native.character_bpe import alphabet_of
from tokenmill.encode.engines.native.normalized_words import character_images
from tokenmill.encode.tokenizer_json import Json, merges_of
from tokenmill.kernels.double_array import LATER_PIECE, double_array, match_pieces
from tokenmill.kernels.merges import merge_table, merge_words
from tokenmill.kernels.normalized_words import normalized_words
from tokenmill.kernels.symbols import symbols_of

_CHANGED = rb"[^\t\n\r -~]"
"""Characters that normalization may change or drop."""
_MOST_CHARACTERS = 1 << 31
"""The limit used if the file has a larger one (up to 2^64 - 1) or none."""


class WordPiece:
    """A `NativeModel` of a tokenizer that `native_objection` admits."""

    def __init__(self, tokenizer: Json) -> None:
        model = tokenizer["model"]
        prefix, self._max_word = None, _MOST_CHARACTERS
        if model["type"] == "WordPiece":
            prefix = model["continuing_subword_prefix"]
            self._max_word = min(model["max_input_chars_per_word"], _MOST_CHARACTERS)
        self._images = character_images(tokenizer)
        self._trie = _trie_of(model["vocab"], prefix)
        self._unknown = int(model["vocab"][model["unk_token"]])

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk, and which have characters outside the table."""
        words, edges, words_before, left_out = normalized_words(data, places, self._images)
        ids, stops = np.empty(len(words), np.uint32), np.zeros(len(edges), np.int64)
        match_pieces(words, edges, self._trie, self._unknown, self._max_word, ids, stops)
        return TokenBatch(ids[: stops[-1]], stops[words_before]), left_out


def _trie_of(vocab: dict[str, int], prefix: str | None) -> Int32Array:
    """Return the trie of `match_pieces`; without a prefix, there are no later pieces."""
    pieces = {text.encode(): token for text, token in vocab.items()}
    if prefix is not None:
        pieces |= {
            LATER_PIECE + text.removeprefix(prefix).encode(): token
            for text, token in vocab.items()
            if text.startswith(prefix) and text != prefix
        }
    return double_array(pieces)


class WordBpe:
    """Encodes chunks: splits them into words, and merges the characters of each word.

    If added tokens are matched, chunks that may contain one after normalization are left to the
    reference.
    """

    def __init__(self, tokenizer: Json, contents: Sequence[str]) -> None:
        model = tokenizer["model"]
        self._images = character_images(tokenizer)
        self._alphabet = alphabet_of(model, marks_spaces=False)
        self._merges = merge_table(model["vocab"], merges_of(model))
        patterns = [_CHANGED, *(re.escape(content.encode()) for content in contents)]
        self._added = re.compile(b"|".join(patterns), re.IGNORECASE) if contents else None

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk, and which chunks are left to the reference."""
        texts, offsets = gathered(data, places)
        added = chunks_with(self._added, texts, offsets)
        kept = np.stack([offsets[:-1], np.where(added, offsets[:-1], offsets[1:])], axis=1)
        words, edges, words_before, left_out = normalized_words(texts, kept, self._images)
        spans = np.stack([edges[:-1], edges[1:]], axis=1)
        symbols, ends, known_before = symbols_of(words, spans, self._alphabet, False)
        ids, stops = merge_words(symbols, ends, self._merges)
        tokens = TokenBatch(ids.astype(np.uint32), stops[known_before[words_before]])
        return tokens, left_out | added
