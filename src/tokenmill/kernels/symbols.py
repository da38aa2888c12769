"""Convert the characters of words to the initial symbols of BPE, in compiled code.

A symbol is the token of a character, a token for each byte of a character outside the vocabulary,
or the unknown token. Merges never cross the edges of words: with Metaspace each word begins with a
▁; otherwise a chunk is one word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.memory import byte_at, code_at, size_at
from tokenmill.kernels.word_slots import Integer

NOTHING = -1
NUM_CODE_POINTS = 0x110000
DROPPED, FALLS_BACK = -1, -2
"""Values of a table of characters that have no symbol of their own."""
SPACE, MARK = ord(" "), ord("▁")
_MARK_1 = "▁".encode()[0]


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
        if label == _MARK_1 and code_at(data, place) == MARK:
            label, size = SPACE, 3
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
            if splits and code in (SPACE, MARK):
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


@inlined
def _character_at(data: UInt8Array, place: Integer, stop: Integer) -> tuple[Integer, Integer]:
    """Return the code point at an index, and the next index. Invalid UTF-8 gives any code point."""
    first = np.int64(data[place])
    size = 1 + int(first >= 0xC0) + int(first >= 0xE0) + int(first >= 0xF0)
    size = int(min(size, stop - place))
    code = first if first < 0x80 else first & (0x7F >> size)
    for i in range(1, size):
        code = (code << 6) | (np.int64(data[place + i]) & 0x3F)
    return min(code, np.int64(NUM_CODE_POINTS - 1)), place + size


@compiled
def count_characters(
    data: UInt8Array, offsets: Int64Array, counts: Int64Array, seen: Int64Array
) -> None:
    """Add the counts of words to those of their characters; row 1 is for all but the first."""
    rows = len(seen)
    for word in range(len(counts)):
        place, stop = offsets[word], offsets[word + 1]
        row = 0
        while place < stop:
            code, place = _character_at(data, place, stop)
            seen[row, code] += counts[word]
            row = int(rows > 1)


@compiled
def segment_words(
    data: UInt8Array,
    offsets: Int64Array,
    counts: Int64Array,
    table: Int32Array,
    made: tuple[Int32Array, Int64Array, Int64Array],
) -> tuple[int, int, Integer, Integer]:
    """Write ids, offsets and counts of words; a character that falls back to bytes ends a word.

    Returns:
        The numbers of ids, words, dropped characters and fallback bytes.
    """
    ids, ends, weights = made
    rows = len(table)
    num_ids, num_words, num_dropped, num_fixed = 0, 0, np.int64(0), np.int64(0)
    for word in range(len(counts)):
        place, stop = offsets[word], offsets[word + 1]
        row = 0
        while place < stop:
            start = place
            code, place = _character_at(data, place, stop)
            token = table[row, code]
            row = int(rows > 1)
            if token >= 0:
                ids[num_ids] = token
                num_ids += 1
            elif token == DROPPED:
                num_dropped += counts[word]
            else:
                num_fixed += (place - start) * counts[word]
                if num_ids > ends[num_words]:
                    weights[num_words] = counts[word]
                    num_words += 1
                    ends[num_words] = num_ids
        if num_ids > ends[num_words]:
            weights[num_words] = counts[word]
            num_words += 1
            ends[num_words] = num_ids
    return num_ids, num_words, num_dropped, num_fixed
