"""The words of BERT's normalizer and pre-tokenizer, and of plainer ones, in compiled code.

All look at one character at a time: clean, put spaces around ideographs, decompose, drop marks,
fold case; then split at white space, and at both sides of punctuation or of a run of it. So the
library is asked once what becomes of every character, and a table tells it again.

Only the order of marks that are kept after decomposition depends on their neighbours. Characters
that leave one are not in the table, nor are most beyond the first plane of Unicode.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import compiled
from tokenmill.encode.engines.chunks.locality import Json, pre_tokenizers, with_library
from tokenmill.encode.engines.native.bpe_symbols import character_at
from tokenmill.records import Int32Array, Int64Array
from tokenmill.words.byte_strings import UInt8Array

BoolArray = npt.NDArray[np.bool_]

NUM_TABLE_CHARACTERS = 0x20000
_ASKED = (*range(0xD800), *range(0xE000, 0x10000), *range(0x1D000, NUM_TABLE_CHARACTERS))
"""No surrogates; of the second plane, notes, letters of mathematics and pictures."""
LEFT_OUT, DROPPED, SPACE, ALONE, IN_WORD, IN_RUN = range(6)
"""What a character is: not in the table, nothing, the end of a word, a word, part of one, or part
of a word of punctuation and symbols only."""
_MARKS = "e\u0301\u0323"
"""Decomposed, their order is another."""
_BETWEEN = "0"
"""No other character becomes one, and none is joined with it but as letters in a word are."""


class CharacterImages(NamedTuple):
    """What becomes of characters."""

    kinds: UInt8Array
    """Shape (NUM_TABLE_CHARACTERS + 1,); the last is that of all others."""
    offsets: Int32Array
    """Shape (NUM_TABLE_CHARACTERS + 2,): where the image of a character begins in `images`."""
    images: UInt8Array
    """UTF-8."""
    growth: int
    """An image has at most so many times the bytes of its character."""


def character_images(tokenizer: Json) -> CharacterImages:
    """What the normalizer and the pre-tokenizer of a tokenizer do with every character."""
    library = with_library(tokenizer, pre_tokenizers(tokenizer))
    normalizer = library.normalizer
    characters = [character for character in map(chr, _ASKED) if character != _BETWEEN]
    made = _BETWEEN + _BETWEEN.join(characters) + _BETWEEN
    if normalizer:
        made = normalizer.normalize_str(made)
    orders = bool(normalizer) and normalizer.normalize_str(_MARKS) != _MARKS
    punctuation = library.pre_tokenizer.pre_tokenize_str("!!")
    single = ALONE if len(punctuation) == 2 else IN_RUN
    kinds = np.full(NUM_TABLE_CHARACTERS + 1, LEFT_OUT, np.uint8)
    images = [b""] * len(kinds)
    kinds[ord(_BETWEEN)], images[ord(_BETWEEN)] = IN_WORD, _BETWEEN.encode()
    alone, cut = _pieces(library.pre_tokenizer, made)
    place = 1
    for character, image in zip(characters, made[1:-1].split(_BETWEEN), strict=True):
        bare = image.strip(" ")
        first = place + image.find(bare)
        place += len(image) + 1
        if not image:
            kind = DROPPED
        elif len(bare) == 1 and first in alone:
            kind = single if bare == image else ALONE
        elif image.isspace() and cut[place - 1 - len(image) : place - 1].all():
            kind = SPACE
        elif not cut[place - 1 - len(image) : place - 1].any() and not (
            orders and _is_ordered(image)
        ):
            kind = IN_WORD
        else:
            continue
        kinds[ord(character)] = kind
        images[ord(character)] = bare.encode() if kind >= ALONE else b""
    offsets = np.zeros(len(kinds) + 1, np.int32)
    np.cumsum([len(image) for image in images], out=offsets[1:])
    growth = max(-(-len(image) // len(chr(c).encode())) for c, image in enumerate(images) if image)
    return CharacterImages(kinds, offsets, np.frombuffer(b"".join(images), np.uint8), growth)


def _pieces(pre_tokenizer: object, text: str) -> tuple[set[int], BoolArray]:
    """Where pieces of one character are, and whether each character is in none of the longer."""
    cut = np.ones(len(text), np.bool_)
    alone = set()
    for _, (start, stop) in pre_tokenizer.pre_tokenize_str(text):  # type: ignore[attr-defined]
        if stop - start == 1 and text[start] != _BETWEEN:
            alone.add(start)
        else:
            cut[start:stop] = False
    return alone, cut


def _is_ordered(image: str) -> bool:
    """Whether it has marks whose order depends on others, or that nothing is known of here."""
    return any(unicodedata.combining(c) or unicodedata.category(c) == "Cn" for c in image)


@compiled
def bert_words(
    texts: UInt8Array, places: Int64Array, table: CharacterImages
) -> tuple[UInt8Array, Int64Array, Int64Array, BoolArray]:
    """The words of chunks `texts[start:stop]`, normalized.

    Returns their UTF-8 one after another; their edges in it, shape (num_words + 1,), none is empty;
    how many words there are before each chunk, shape (num_chunks + 1,); and which chunks are left
    out and have no words, shape (num_chunks,).
    """
    num_bytes = (places[:, 1] - places[:, 0]).sum()
    room = table.growth * num_bytes
    made, edges = np.empty(room, np.uint8), np.empty(num_bytes + 1, np.int64)
    edges[0] = 0
    words_before, left_out = np.zeros(len(places) + 1, np.int64), np.zeros(len(places), np.bool_)
    data, size, count = texts.ctypes.data, 0, 0
    for chunk in range(len(places)):
        place, stop = places[chunk, 0], places[chunk, 1]
        last_kind = SPACE
        while place < stop:
            code, length = character_at(data, place)
            row = min(code, NUM_TABLE_CHARACTERS)
            kind = table.kinds[row]
            if kind == LEFT_OUT:
                left_out[chunk] = True
                break
            ends = kind <= ALONE or kind != last_kind
            if kind != DROPPED:
                if ends and size > edges[count]:
                    count += 1
                    edges[count] = size
                last_kind = kind
            for i in range(table.offsets[row], table.offsets[row + 1]):
                made[size] = table.images[i]
                size += 1
            if kind == ALONE:
                count += 1
                edges[count] = size
            place += length
        if left_out[chunk]:
            count = words_before[chunk]
            size = edges[count]
        elif size > edges[count]:
            count += 1
            edges[count] = size
        words_before[chunk + 1] = count
    return made[:size], edges[: count + 1].copy(), words_before, left_out
