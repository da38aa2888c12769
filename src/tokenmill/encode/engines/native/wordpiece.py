"""WordPiece as BERT has it, compiled: characters are mapped, words cut, pieces matched in a trie.

Only chunks of ASCII are encoded here. What BERT's steps make of each ASCII character is asked of
the library, one by one: neither of them looks at what stands beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import byte_at, compiled
from tokenmill.encode.engines.chunks.locality import Json, pre_tokenizers, with_library
from tokenmill.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.words.byte_strings import UInt8Array, UInt64Array

BoolArray = npt.NDArray[np.bool_]

NUM_ASCII = 0x80
REMOVED, SPACE, ALONE, IN_WORD = range(4)
"""What becomes of a character: nothing; an end of a word; a word of its own; a part of one."""
FIRST_PIECE, LATER_PIECE = range(2)
"""The roots of the trie: tokens, and tokens without the prefix that marks later pieces."""
_MOST_CHARACTERS = 1 << 31
"""No word has more; a file may say so, up to 2^64 - 1."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)


class _Trie(NamedTuple):
    """Tokens byte by byte."""

    edges: UInt64Array
    """Shape (num_slots, 2): `node << 8 | byte`, plus 1, and the node to which it leads; 0: free."""
    tokens: Int64Array
    """Shape (num_nodes,): the id of the token that ends at a node, or -1."""


class WordPiece:
    """A `NativeModel` of a tokenizer to which `native_objection` has nothing to object."""

    def __init__(self, tokenizer: Json) -> None:
        model = tokenizer["model"]
        self._characters, self._kinds = _ask_library(tokenizer)
        self._trie = _trie_of(model["vocab"], model["continuing_subword_prefix"])
        self._unknown = int(model["vocab"][model["unk_token"]])
        self._max_word = min(model["max_input_chars_per_word"], _MOST_CHARACTERS)

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """The ids of every chunk, and which are not ASCII and so left out."""
        sizes = places[:, 1] - places[:, 0]
        word = np.empty(int(sizes.max()) + 1, np.uint8)
        ids = np.empty(int(sizes.sum()), np.uint32)  # no piece is empty
        offsets = np.zeros(len(places) + 1, np.int64)
        left_out = np.zeros(len(places), np.bool_)
        words = (self._characters, self._kinds, word)
        model = (*self._trie, self._unknown, self._max_word)
        _encode(data, places, words, model, ids, offsets, left_out)
        return TokenBatch(ids[: offsets[-1]], offsets), left_out


def _ask_library(tokenizer: Json) -> tuple[UInt8Array, UInt8Array]:
    """Shape (128,): what each ASCII character is normalized to, and what becomes of that."""
    library = with_library(tokenizer, pre_tokenizers(tokenizer))
    characters, kinds = np.zeros(NUM_ASCII, np.uint8), np.zeros(NUM_ASCII, np.uint8)
    for code in range(NUM_ASCII):
        made = library.normalizer.normalize_str(chr(code))
        if made:
            characters[code] = ord(made)
            pieces = library.pre_tokenizer.pre_tokenize_str(f"x{made}x")
            kinds[code] = {1: IN_WORD, 2: SPACE, 3: ALONE}[len(pieces)]
    return characters, kinds


def _trie_of(vocab: dict[str, int], prefix: str) -> _Trie:
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
        if text and text.isascii():
            add(FIRST_PIECE, text, token)
        later = text.removeprefix(prefix)
        if later and later.isascii() and text.startswith(prefix):
            add(LATER_PIECE, later, token)
    keys = np.fromiter(edges, np.uint64, len(edges))
    nodes = np.fromiter(edges.values(), np.uint64, len(edges))
    return _Trie(_table_of(keys, nodes), np.array(tokens, np.int64))


def _table_of(keys: UInt64Array, nodes: UInt64Array) -> UInt64Array:
    """Edges in slots by their hash, or in the next free one."""
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
    word: UInt8Array,
    size: int | np.int64,
    model: tuple[UInt64Array, Int64Array, int, int],
    ids: UInt32Array,
    count: int | np.int64,
) -> int | np.int64:
    """Write the longest pieces of a word, or that it is unknown; returns the number of ids."""
    edges, tokens, unknown, max_word = model
    mask = len(edges) - 1
    first_id, place = count, 0
    while place < size:
        node = FIRST_PIECE if place == 0 else LATER_PIECE
        token, end = np.int64(-1), place
        for i in range(place, size if size <= max_word else 0):
            key = np.uint64(node) << np.uint64(8) | np.uint64(word[i])
            slot = np.int64((key * _FACTOR) >> _SHIFT) & mask
            key += np.uint64(1)
            while edges[slot, 0] and edges[slot, 0] != key:
                slot = (slot + 1) & mask
            if not edges[slot, 0]:
                break
            node = int(edges[slot, 1])
            if tokens[node] >= 0:
                token, end = tokens[node], i + 1
        if token < 0:
            ids[first_id] = np.uint32(unknown)
            return first_id + 1
        ids[count] = np.uint32(token)
        count += 1
        place = end
    return count


@compiled
def _encode(
    texts: UInt8Array,
    places: Int64Array,
    words: tuple[UInt8Array, UInt8Array, UInt8Array],
    model: tuple[UInt64Array, Int64Array, int, int],
    ids: UInt32Array,
    offsets: Int64Array,
    left_out: BoolArray,
) -> None:
    characters, kinds, word = words
    data = texts.ctypes.data
    count: int | np.int64 = 0
    for chunk in range(len(places)):
        start, stop = places[chunk, 0], places[chunk, 1]
        size = 0
        for place in range(start, stop):
            byte = byte_at(data + place)
            if byte >= NUM_ASCII:
                left_out[chunk] = True
                size, count = 0, offsets[chunk]
                break
            kind = kinds[byte]
            if kind == IN_WORD:
                word[size] = characters[byte]
                size += 1
            elif kind != REMOVED:
                count = _match(word, np.int64(size), model, ids, np.int64(count))
                size = 0
                if kind == ALONE:
                    word[0] = characters[byte]
                    count = _match(word, np.int64(1), model, ids, np.int64(count))
        count = _match(word, np.int64(size), model, ids, np.int64(count))
        offsets[chunk + 1] = count
