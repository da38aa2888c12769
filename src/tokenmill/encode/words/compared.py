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

import numpy as np

from tokenmill.kernels.shared_runs import ALONE, MARK, NUM_CHARACTERS, SPACE, Characters

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
SYLLABLES = range(0xAC00, 0xD7A4)
"""Of Korean; decomposed they would not fit, and nobody writes them so."""
MOST_BYTES = 8


def image_of(character: str) -> str:
    """Return what stands for a character in words; "" if it is dropped or white space."""
    if character.isspace() or unicodedata.category(character)[0] in "PSC":
        return ""
    if ord(character) in SYLLABLES:
        return character
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    image = "".join(each for each in folded if unicodedata.category(each)[0] not in "PSCZ")
    return image if len(image.encode()) <= MOST_BYTES else character


@cache
def characters() -> Characters:
    """Return the images of all characters, for compiled code."""
    kinds, images = np.zeros(NUM_CHARACTERS + 1, np.uint8), np.zeros(NUM_CHARACTERS + 1, np.uint64)
    for code in range(NUM_CHARACTERS):
        character = chr(code)
        image = image_of(character).encode()
        is_mark = unicodedata.category(character)[0] == "M"
        kinds[code] = len(image) | MARK * is_mark | SPACE * character.isspace()
        images[code] = int.from_bytes(image, "little")
    for codes in WITHOUT_SPACES:
        part = kinds[codes.start : codes.stop]
        part |= np.where(part & MARK | (part == 0), 0, ALONE).astype(np.uint8)
    return Characters(kinds, images)
