"""Compiled code that normalizes texts and splits them into words, for steps like BERT's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, UInt8Array
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.memory import code_at, size_at

NUM_TABLE_CHARACTERS = 0x20000
LEFT_OUT, DROPPED, SPACE, ALONE, IN_WORD, IN_RUN, MARK = range(7)
"""Kinds of characters: not in the table; dropped; ends a word; a word on its own; part of a word;
part of a run of punctuation and symbols; part of the word of the character before it."""


class CharacterImages(NamedTuple):
    """How characters are normalized and split."""

    kinds: UInt8Array
    """Shape (num_characters + 1,); the last one is for all other characters."""
    offsets: Int32Array
    """Shape (num_characters + 2,): where the image of a character begins in `images`."""
    images: UInt8Array
    """UTF-8."""
    growth: int
    """The most bytes of an image per byte of its character."""


def normalized_words(
    texts: UInt8Array, places: Int64Array, table: CharacterImages
) -> tuple[UInt8Array, Int64Array, Int64Array, BoolArray]:
    """Return the normalized words of chunks, `texts[start:stop]` for each row of `places`.

    Returns:
        The words in UTF-8, concatenated; their edges, shape (num_words + 1,), none is empty; the
        number of words before each chunk, shape (num_chunks + 1,); and which chunks are left to the
        reference and have no words, shape (num_chunks,).
    """
    num_bytes = int((places[:, 1] - places[:, 0]).sum())
    made, edges = np.empty(table.growth * num_bytes, np.uint8), np.empty(num_bytes + 1, np.int64)
    words_before, left_out = np.zeros(len(places) + 1, np.int64), np.zeros(len(places), np.bool_)
    _write_words(texts, places, table, made, edges, words_before, left_out)
    edges = edges[: words_before[-1] + 1]
    return made[: edges[-1]], edges, words_before, left_out


@compiled
def _write_words(
    texts: UInt8Array,
    places: Int64Array,
    table: CharacterImages,
    made: UInt8Array,
    edges: Int64Array,
    words_before: Int64Array,
    left_out: BoolArray,
) -> None:
    """Fill the arrays that `normalized_words` returns."""
    kinds, offsets, images, _ = table
    data, size, count = texts.ctypes.data, 0, 0
    edges[0] = 0
    for chunk in range(len(left_out)):
        place, stop = places[chunk, 0], places[chunk, 1]
        last_kind = SPACE
        while place < stop:
            row = min(code_at(data, place), len(kinds) - 1)
            kind = kinds[row]
            if kind == LEFT_OUT:
                left_out[chunk] = True
                break
            if kind not in (DROPPED, MARK):
                ends = kind <= ALONE or kind != last_kind
                if ends and size > edges[count]:
                    count += 1
                    edges[count] = size
                last_kind = kind
            for i in range(offsets[row], offsets[row + 1]):
                made[size] = images[i]
                size += 1
            place += size_at(data, place)
        if left_out[chunk]:
            count = words_before[chunk]
            size = edges[count]
        elif size > edges[count]:
            count += 1
            edges[count] = size
        words_before[chunk + 1] = count
