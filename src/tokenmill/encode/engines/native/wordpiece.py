"""WordPiece and WordLevel in compiled code: split and normalize words, match pieces in a trie.

    new chunks ─normalized_words─▶ words ─longest pieces─▶ ids

A WordLevel model is a WordPiece model without later pieces: a word is either a token or unknown.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.encode.engines.chunks.locality import Json
from tokenmill.encode.engines.native.normalized_words import character_images, normalized_words
from tokenmill.encode.words.byte_strings import UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled

BoolArray = npt.NDArray[np.bool_]

FIRST_PIECE, LATER_PIECE = range(2)
"""The two roots of the trie: for first pieces, and for later pieces without their prefix."""
_MOST_CHARACTERS = 1 << 31
"""The limit used if the file has a larger one (up to 2^64 - 1) or none."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class _Trie(NamedTuple):
    """A trie over the bytes of tokens."""

    edges: UInt64Array
    """Shape (num_slots, 2): `(node << 8 | byte) + 1` and the child node; a free slot has 0."""
    tokens: Int64Array
    """Shape (num_nodes,): the id of the token that ends at a node, or -1."""


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
        _match(words, edges, self._trie, self._unknown, self._max_word, ids, stops)
        return TokenBatch(ids[: stops[-1]], stops[words_before]), left_out


def _trie_of(vocab: dict[str, int], prefix: str | None) -> _Trie:
    """Build the trie; without a prefix, there are no later pieces."""
    edges: dict[int, int] = {}
    tokens = [-1, -1]

    def add(root: int, text: str, token: int) -> None:
        node = root
        for byte in text.encode():
            following = edges.setdefault(node << 8 | byte, len(tokens))
            if following == len(tokens):
                tokens.append(-1)
            node = following
        tokens[node] = token

    for text, token in vocab.items():
        if text:
            add(FIRST_PIECE, text, token)
        if prefix is not None and text.startswith(prefix) and text != prefix:
            add(LATER_PIECE, text.removeprefix(prefix), token)
    keys = np.fromiter(edges, np.uint64, len(edges))
    nodes = np.fromiter(edges.values(), np.uint64, len(edges))
    return _Trie(_table_of(keys, nodes), np.array(tokens, np.int64))


def _table_of(keys: UInt64Array, nodes: UInt64Array) -> UInt64Array:
    """Build the hash table of edges, with linear probing."""
    size = 1 << (2 * len(keys) + 1).bit_length()
    table = np.zeros((size, 2), np.uint64)
    slots = ((keys * _FACTOR) >> _SHIFT).astype(np.int64) & (size - 1)
    left = np.arange(len(keys))
    while len(left):
        free = left[table[slots[left], 0] == 0]
        _, first = np.unique(slots[free], return_index=True)
        placed = free[first]
        table[slots[placed], 0] = keys[placed] + np.uint64(1)
        table[slots[placed], 1] = nodes[placed]
        left = np.setdiff1d(left, placed, assume_unique=True)
        slots[left] = (slots[left] + 1) & (size - 1)
    return table


@compiled
def _match(
    words: UInt8Array,
    offsets: Int64Array,
    trie: _Trie,
    unknown: int,
    max_word: int,
    ids: UInt32Array,
    stops: Int64Array,
) -> None:
    """Write the ids of each word: its longest pieces, or the unknown token.

    ids: shape (num_bytes,), the output
    stops: shape (num_words + 1,), the output: the offsets of words in `ids`
    """
    edges, tokens = trie
    mask = len(edges) - 1
    count = 0
    for word in range(len(offsets) - 1):
        first_id, place, stop = count, offsets[word], offsets[word + 1]
        size = stop - place
        if size > max_word:  # the limit counts characters, so subtract continuation bytes
            for i in range(place, stop):
                size -= words[i] & 0xC0 == 0x80
        node, known = FIRST_PIECE, size <= max_word
        while known and place < stop:
            token, end = np.int64(-1), place
            for i in range(place, stop):
                key = np.uint64(node) << np.uint64(8) | np.uint64(words[i])
                slot = np.int64((key * _FACTOR) >> _SHIFT) & mask
                key += np.uint64(1)
                while edges[slot, 0] and edges[slot, 0] != key:
                    slot = (slot + 1) & mask
                if not edges[slot, 0]:
                    break
                node = int(edges[slot, 1])
                if tokens[node] >= 0:
                    token, end = tokens[node], i + 1
            ids[count] = np.uint32(token)
            count += 1
            place, node, known = end, LATER_PIECE, token >= 0
        if not known:
            ids[first_id] = np.uint32(unknown)
            count = first_id + 1
        stops[word + 1] = count
