"""The words of BERT's normalizer and pre-tokenizer, in compiled code.

Both look at one character at a time: clean, put spaces around ideographs, decompose, drop marks,
fold case; then split at white space, and at both sides of punctuation. So the library is asked
once what becomes of every character, and a table tells it again.

Only the order of marks that are kept depends on their neighbours. Characters that leave one, and
those beyond the first plane of Unicode, are not in the table.
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

NUM_TABLE_CHARACTERS = 0x10000
LEFT_OUT, DROPPED, SPACE, ALONE, IN_WORD = range(5)
"""What a character is: not in the table, nothing, the end of a word, a word, or part of one."""
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
    codes = [c for c in range(NUM_TABLE_CHARACTERS) if not 0xD800 <= c < 0xE000]
    characters = [chr(code) for code in codes if chr(code) != _BETWEEN]
    made = _BETWEEN + _BETWEEN.join(characters) + _BETWEEN
    if library.normalizer:
        made = library.normalizer.normalize_str(made)
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
            kind = ALONE
        elif image.isspace() and cut[place - 1 - len(image) : place - 1].all():
            kind = SPACE
        elif not cut[place - 1 - len(image) : place - 1].any() and not _is_ordered(image):
            kind = IN_WORD
        else:
            continue
        kinds[ord(character)] = kind
        images[ord(character)] = bare.encode() if kind in {ALONE, IN_WORD} else b""
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
    room = table.growth * (places[:, 1] - places[:, 0]).sum()
    made, edges = np.empty(room, np.uint8), np.zeros(room + 1, np.int64)
    words_before, left_out = np.zeros(len(places) + 1, np.int64), np.zeros(len(places), np.bool_)
    data, size, count = texts.ctypes.data, 0, 0
    for chunk in range(len(places)):
        place, stop = places[chunk, 0], places[chunk, 1]
        while place < stop:
            code, length = character_at(data, place)
            row = min(code, NUM_TABLE_CHARACTERS)
            kind = table.kinds[row]
            if kind == LEFT_OUT:
                left_out[chunk] = True
                break
            if kind in (SPACE, ALONE) and size > edges[count]:
                count += 1
                edges[count] = size
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
