"""How words are compared: without case, punctuation and compatible spellings of characters.

    "“It’s ﬁne — really!”"   ─▶   its fine really

Words are separated by white space. In each character by itself, punctuation, symbols and control
characters (Unicode's categories P, S and C) are dropped, and others are decomposed (NFKD) and
case-folded. So the order of several combining marks counts. Chinese characters and Japanese kana,
which are written without spaces, are words of their own.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import pairwise

import numpy as np

from tokenmill.core.records import Int64Array, UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.normalized_words import (
    ALONE,
    DROPPED,
    IN_WORD,
    MARK,
    SPACE,
    CharacterImages,
    normalized_words,
)

NUM_CHARACTERS = 0x33480
"""Characters from here on are no part of words: tags, variation selectors and private ones."""
WITHOUT_SPACES = (
    range(0x3005, 0x3008),
    range(0x3041, 0x3100),
    range(0x31F0, 0x3200),
    range(0x3400, 0x4DC0),
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0xFF66, 0xFF9E),
    range(0x20000, NUM_CHARACTERS),
)
"""Chinese characters and Japanese kana."""


def compared_words(
    data: UInt8Array, offsets: Int64Array
) -> tuple[UInt8Array, Int64Array, Int64Array]:
    """Return the words of texts, `data[offsets[i]:offsets[i + 1]]` in UTF-8.

    Bytes that are not UTF-8 are left out.

    Returns:
        The words in UTF-8, concatenated; their edges, shape (num_words + 1,); and the number of
        words before each text, shape (num_texts + 1,).
    """
    if not _is_utf8(data, offsets):
        texts = [data[a:b].tobytes().decode(errors="ignore") for a, b in pairwise(offsets.tolist())]
        data = np.frombuffer("".join(texts).encode(), np.uint8)
        offsets = offsets_from_lengths([len(text.encode()) for text in texts])
    places = np.stack([offsets[:-1], offsets[1:]], axis=1)
    return normalized_words(data, places, characters())[:3]


def _is_utf8(data: UInt8Array, offsets: Int64Array) -> bool:
    """Whether each of several texts is valid UTF-8."""
    import pyarrow as pa

    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    texts = pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def image_of(character: str) -> str:
    """Return what stands for a character in words; "" if it is dropped or white space."""
    is_none = character.isspace() or ord(character) >= NUM_CHARACTERS
    if is_none or unicodedata.category(character)[0] in "PSC":
        return ""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(each for each in folded if unicodedata.category(each)[0] not in "PSCZ")


@cache
def characters() -> CharacterImages:
    """Return the images of all characters, for compiled code."""
    images = [image_of(chr(code)).encode() for code in range(NUM_CHARACTERS)]
    kinds = np.full(NUM_CHARACTERS + 1, IN_WORD, np.uint8)
    for codes in WITHOUT_SPACES:
        kinds[codes.start : codes.stop] = ALONE
    kinds[-1] = DROPPED
    for code, image in enumerate(images):
        character = chr(code)
        if character.isspace():
            kinds[code] = SPACE
        elif not image:
            kinds[code] = DROPPED
        elif unicodedata.category(character)[0] == "M":
            kinds[code] = MARK
    sizes = [len(chr(code).encode(errors="replace")) for code in range(NUM_CHARACTERS)]
    return CharacterImages(
        kinds=kinds,
        offsets=offsets_from_lengths([*map(len, images), 0]).astype(np.int32),
        images=np.frombuffer(b"".join(images), np.uint8),
        growth=max(-(-len(image) // size) for image, size in zip(images, sizes, strict=True)),
    )
