"""Models over the words of BERT's normalizer and pre-tokenizer, in compiled code.

    new chunks ─normalized_words─▶ words ─longest pieces─▶ ids           WordPiece and WordLevel
                                         ─symbols─▶ ─merges─▶ ids        BPE with an end-of-word
                                                                         suffix (GPT)

A WordLevel model is a WordPiece model without later pieces: a word is either a token or unknown.

BERT's steps look at one character at a time: clean, put spaces around ideographs, decompose, drop
marks, fold case; then split at white space and around punctuation or runs of it. So the library is
asked once for the image of every character, and the answers are kept in a table.

The only exception is the order of marks that remain after decomposition. Characters that leave such
marks are not in the table, and neither are most characters beyond the first plane of Unicode.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import EngineError
from tokenmill.core.records import BoolArray, Int32Array, Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engines.native.byte_bpe import chunks_with, gathered
from tokenmill.encode.engines.native.character_bpe import alphabet_of
from tokenmill.encode.tokenizer_json import Json, merges_of, pre_tokenizers, with_library
from tokenmill.kernels.double_array import LATER_PIECE, double_array, match_pieces
from tokenmill.kernels.merges import merge_table, merge_words
from tokenmill.kernels.normalized_words import (
    ALONE,
    DROPPED,
    IN_RUN,
    IN_WORD,
    LEFT_OUT,
    NUM_TABLE_CHARACTERS,
    SPACE,
    CharacterImages,
    normalized_words,
)
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


_ASKED = np.r_[:0xD800, 0xE000:0x10000, 0x1D000:NUM_TABLE_CHARACTERS].astype("<u4")
"""All but surrogates; of the second plane, only musical and mathematical symbols and emoji."""
_MARKS = "e\u0301\u0323"
"""Decomposition reorders these marks."""
_UTF_32 = "utf-32-le"
_BETWEEN = ord("0")
"""The separator. No other character normalizes to it, and it joins others only like a letter."""


_SPACE = ord(" ")
_FIRST_OF_MORE_BYTES = (0x80, 0x800, 0x10000)


class _Images(NamedTuple):
    """The images of `_ASKED` from the library, concatenated."""

    text: str
    codes: npt.NDArray[np.uint32]
    """The code points of `text`, shape (len(text),)."""
    first: Int64Array
    stop: Int64Array
    """Where each image begins and ends in `text`, both of shape (len(_ASKED),)."""

    def total(self, values: npt.NDArray[np.generic]) -> Int64Array:
        """Sum `values`, shape (len(text),), over each image; the sums have shape (len(_ASKED),)."""
        before = offsets_from_lengths(values)
        return before[self.stop] - before[self.first]


def character_images(tokenizer: Json) -> CharacterImages:
    """Return what the normalizer and the pre-tokenizer of a tokenizer do with every character.

    Raises:
        EngineError: the library treats some characters in an unexpected way.
    """
    library = with_library(tokenizer, pre_tokenizers(tokenizer))
    normalize = library.normalizer.normalize_str if library.normalizer else str
    found = _asked(normalize)
    orders = normalize(_MARKS) != _MARKS
    kinds = _kinds_of(found, library.pre_tokenizer.pre_tokenize_str, orders)
    kept = found.codes != _BETWEEN
    kept[found.first[_BETWEEN]] = True
    kept[kept] = np.repeat(kinds >= ALONE, found.stop - found.first)
    kept &= found.codes != _SPACE
    lengths = found.total(_num_bytes(found.codes) * kept)
    kinds_of_all = np.full(NUM_TABLE_CHARACTERS + 1, LEFT_OUT, np.uint8)
    lengths_of_all = np.zeros(len(kinds_of_all), np.int64)
    kinds_of_all[_ASKED], lengths_of_all[_ASKED] = kinds, lengths
    offsets = offsets_from_lengths(lengths_of_all).astype(np.int32)
    images = np.frombuffer(found.codes[kept].tobytes().decode(_UTF_32).encode(), np.uint8)
    growth = int(np.max(-(-lengths // _num_bytes(_ASKED))))
    return CharacterImages(kinds_of_all, offsets, images, growth)


def _asked(normalize: Callable[[str], str]) -> _Images:
    others = _ASKED[_ASKED != _BETWEEN]
    asked = np.full(2 * len(others) + 1, _BETWEEN, others.dtype)
    asked[1::2] = others
    text = normalize(asked.tobytes().decode(_UTF_32))
    codes = np.frombuffer(text.encode(_UTF_32), others.dtype)
    edges = np.flatnonzero(codes == _BETWEEN)
    if len(edges) != len(others) + 1:
        raise EngineError("the library normalizes some characters in an unexpected way")
    # The separator is its own image; insert it.
    first = np.insert(edges[:-1] + 1, _BETWEEN, edges[_BETWEEN])
    stop = np.insert(edges[1:], _BETWEEN, edges[_BETWEEN] + 1)
    return _Images(text, codes, first, stop)


def _kinds_of(
    found: _Images, split: Callable[[str], list[tuple[str, tuple[int, int]]]], orders: bool
) -> UInt8Array:
    """Return the kinds, shape (len(_ASKED),); `orders` says whether marks are reordered."""
    spans = np.array([span for _, span in split(found.text)])
    size = spans[:, 1] - spans[:, 0]
    alone = np.zeros(len(found.codes), np.bool_)
    alone[spans[size == 1, 0]] = True
    alone &= found.codes != _BETWEEN
    longer = spans[(size > 1) | ~alone[spans[:, 0]]]
    edges = np.zeros(len(alone) + 1, np.int64)
    edges[longer[:, 0]] += 1
    edges[longer[:, 1]] -= 1
    num_joined = found.total(np.cumsum(edges[:-1]))
    size = found.stop - found.first
    bare = found.total(found.codes != _SPACE)
    white = found.total(np.char.isspace(found.codes.view("<U1")))
    in_word = num_joined == size
    if orders:
        ordered = np.fromiter(map(_is_ordered, found.text), np.bool_, len(found.text))
        in_word &= found.total(ordered) == 0
    is_alone = (bare == 1) & (found.total(alone) == 1)
    punctuation = ALONE if len(split("!!")) == 2 else IN_RUN
    return np.select(
        [size == 0, is_alone & (size > 1), is_alone, (white == size) & (num_joined == 0), in_word],
        [DROPPED, ALONE, punctuation, SPACE, IN_WORD],
        LEFT_OUT,
    ).astype(np.uint8)


def _num_bytes(codes: npt.NDArray[np.uint32]) -> Int64Array:
    """Return the length of each character in UTF-8."""
    return np.searchsorted(_FIRST_OF_MORE_BYTES, codes, side="right") + 1


def _is_ordered(character: str) -> bool:
    """Whether a character may be reordered, or is unassigned in this version of Python."""
    return unicodedata.combining(character) > 0 or unicodedata.category(character) == "Cn"
