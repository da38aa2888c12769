"""Convert characters to the initial symbols of BPE, in compiled code.

A symbol is the token of a character, a token for each byte of a character outside the vocabulary,
or the unknown token. Merges never cross the edges of words: with Metaspace each word begins with a
▁; otherwise a chunk is one word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.encode.engines.native.bpe_gate import MARK
from tokenmill.encode.engines.native.double_array import double_array
from tokenmill.encode.subword.words import BYTES, NUM_CODE_POINTS
from tokenmill.encode.words.byte_strings import UInt8Array
from tokenmill.encode.words.utf8 import code_at, size_at
from tokenmill.kernels.compiled import byte_at, compiled, inlined

Json = dict[str, Any]

NOTHING = -1
_SPACE, _MARK = ord(" "), ord(MARK)
_MARK_1 = MARK.encode()[0]


class Alphabet(NamedTuple):
    """The initial symbols of a vocabulary."""

    symbols: Int32Array
    """Shape (NUM_CODE_POINTS,): the token of a character, or -1."""
    last: Int32Array
    """Shape (NUM_CODE_POINTS,): the token of a word's last character, which may have a suffix."""
    of_bytes: Int32Array
    """Shape (256,): the tokens of bytes, for characters outside the vocabulary; -1 if unused."""
    unknown: int
    """The unknown token, or -1 if unknown characters are dropped."""
    fuses: bool
    """Whether consecutive unknown characters become one token."""
    whole: Int32Array
    """A trie (`double_array.py`) of tokens that are matched before characters, the longest first,
    and never merged. ▁ is spelled as a space there."""


def alphabet_of(model: Json, marks_spaces: bool) -> Alphabet:
    """Return the symbols of a BPE model; `marks_spaces` says whether spaces become ▁."""
    vocab: Mapping[str, int] = model["vocab"]
    symbols, last = _by_character(vocab, ""), _by_character(vocab, model.get("end_of_word_suffix"))
    if marks_spaces:
        symbols[_SPACE], last[_SPACE] = symbols[_MARK], last[_MARK]
    of_bytes = np.full(len(BYTES), NOTHING, np.int32)
    if model.get("byte_fallback"):
        of_bytes[:] = [vocab[name] for name in BYTES]
    unknown = vocab[model["unk_token"]] if model.get("unk_token") is not None else NOTHING
    fuses = bool(model.get("fuse_unk"))
    return Alphabet(symbols, last, of_bytes, unknown, fuses, whole_tokens({}))


def whole_tokens(ids: Mapping[str, int]) -> Int32Array:
    """Return the trie of tokens that are matched as a whole. Tokens with a space never match."""
    spelled = {
        text.replace(MARK, " ").encode(): number for text, number in ids.items() if " " not in text
    }
    return double_array(spelled)


def _by_character(vocab: Mapping[str, int], suffix: str | None) -> Int32Array:
    """Return the token of each character followed by a suffix, or -1."""
    symbols = np.full(NUM_CODE_POINTS, NOTHING, np.int32)
    size = 1 + len(suffix or "")
    found = [
        (ord(token[0]), number)
        for token, number in vocab.items()
        if len(token) == size and token.endswith(suffix or "")
    ]
    symbols[[character for character, _ in found]] = [number for _, number in found]
    return symbols


@inlined
def _end_word(offsets: Int64Array, num_words: int, count: int) -> int:
    """End a word after `count` symbols, if it is not empty; return the number of words."""
    if count > offsets[num_words]:
        num_words += 1
        offsets[num_words] = count
    return num_words


def symbols_of(
    texts: UInt8Array, places: Int64Array, alphabet: Alphabet, splits: bool
) -> tuple[Int32Array, Int64Array, Int64Array]:
    """Convert chunks, `texts[start:stop]` for each row of `places`, to words of symbols.

    Args:
        texts: The chunks in UTF-8.
        places: Shape (num_chunks, 2).
        alphabet: The symbols of the vocabulary.
        splits: Whether a word ends before every ▁ or space.

    Returns:
        The symbols, concatenated; the offsets of words in them, shape (num_words + 1,); and the
        number of words before each chunk, shape (num_chunks + 1,). No word is empty.
    """
    room = int((places[:, 1] - places[:, 0]).sum())
    symbols, offsets = np.empty(room, np.int32), np.zeros(room + 1, np.int64)
    words_before = np.zeros(len(places) + 1, np.int64)
    _write_symbols(texts, places, alphabet, splits, symbols, offsets, words_before)
    offsets = offsets[: words_before[-1] + 1]
    return symbols[: offsets[-1]], offsets, words_before


@inlined
def _find_whole(whole: Int32Array, data: int, place: int, stop: int) -> tuple[int, int]:
    """Return the longest token of a trie that begins at a place, or -1, and where it ends."""
    token, end, node = NOTHING, place, np.int64(0)
    while place < stop:
        label, size = byte_at(data + place), 1
        if label == _MARK_1 and code_at(data, place) == _MARK:
            label, size = _SPACE, 3
        node = np.int64(whole[node, 0]) >> 8 ^ label
        if whole[node, 0] & 0xFF != label:
            break
        place += size
        if whole[node, 1] >= 0:
            token, end = int(whole[node, 1]), place
    return token, end


@compiled
def _write_symbols(
    texts: UInt8Array,
    places: Int64Array,
    alphabet: Alphabet,
    splits: bool,
    symbols: Int32Array,
    offsets: Int64Array,
    words_before: Int64Array,
) -> None:
    characters, last, of_bytes, unknown, fuses, whole = alphabet
    falls_back = of_bytes[0] >= 0
    data = texts.ctypes.data
    count = num_words = 0
    for chunk in range(len(places)):
        place, stop = places[chunk, 0], places[chunk, 1]
        follows_unknown = False
        while place < stop:
            token, end = _find_whole(whole, data, place, stop)
            if token >= 0:
                symbols[count] = token
                count, place, follows_unknown = count + 1, end, False
                continue
            code, size = code_at(data, place), size_at(data, place)
            is_last = place + size == stop
            symbol = last[code] if is_last else characters[code]
            if splits and code in (_SPACE, _MARK):
                num_words = _end_word(offsets, num_words, count)
                follows_unknown = False
            if symbol >= 0:
                symbols[count] = symbol
                count += 1
            elif falls_back:
                for i in range(size):
                    symbols[count + i] = of_bytes[byte_at(data + place + i)]
                count += size
            elif unknown >= 0 and not (fuses and follows_unknown):
                symbols[count] = unknown
                count += 1
            follows_unknown = symbol < 0
            place += size
        num_words = _end_word(offsets, num_words, count)
        words_before[chunk + 1] = num_words
