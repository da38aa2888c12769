"""What the normalizer of a tokenizer.json does with each character, asked of the library.

Only steps are admitted that do to a text what they do to its characters, but for

    Precompiled   looks up a short grapheme as a whole, so a key before a mark is left out
    NFC, NFKC     compose: characters that may do so are left out (`words/characters.py`)
    spaces        joined, stripped, and marked by rules of their own
"""

from __future__ import annotations

import base64
import unicodedata
from typing import NamedTuple

import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.encode.engines.chunks.charsmap import read_charsmap
from tokenmill.encode.engines.chunks.locality import (
    JOINING,
    Json,
    with_library,
)
from tokenmill.encode.engines.native.normalizer import (
    BEYOND,
    BLANK,
    CHANGED,
    COMPOSED,
    COMPOSES,
    JOINS,
    KEY,
    LEFT_OUT,
    LINE_END,
    NUM_ROWS,
    NUM_TABLE_CHARACTERS,
    CharacterTable,
    Normalizer,
)
from tokenmill.encode.engines.native.pipeline import (
    COMPOSING,
    STRIP_END,
    Pipeline,
    read_pipeline,
)
from tokenmill.errors import EngineError
from tokenmill.words.byte_strings import UInt8Array
from tokenmill.words.characters import COMPOSED as OTHERWISE
from tokenmill.words.characters import FIXED, SURROGATES, characters

_SEPARATOR = "\u3401"
"""No normalizer makes it of anything, or anything of it; this is checked."""
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""Unicode's White_Space."""
_JOINING_CATEGORIES = {"Mn", "Mc", "Me", "Cf", "Cn"}
_JOINING_OTHERS = {0x0E33, 0x0EB3, 0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400)}
"""At least all that is Extend, SpacingMark or ZWJ (Unicode annex 29), also in later versions."""
_MAX_IMAGE_CHARACTERS = 64


class Composition(NamedTuple):
    """What characters do with their neighbours."""

    kinds: UInt8Array
    orders: UInt8Array


def compiled_normalizer(tokenizer: Json) -> Normalizer:
    """The steps before the model, to which there is no objection.

    Raises:
        EngineError: the library does not do with characters what is known of it.
    """
    steps = read_pipeline(tokenizer)
    if isinstance(steps, str):
        raise EngineError("native cannot normalize", why=steps)
    return Normalizer(_character_table(steps), steps.rules)


def _character_table(steps: Pipeline) -> CharacterTable:
    codes = [code for code in range(NUM_TABLE_CHARACTERS) if code not in SURROGATES]
    texts = [*map(chr, codes), "\r\n"]
    images = _images(steps, texts)
    kinds, lengths = np.zeros(NUM_ROWS, np.uint8), np.zeros(NUM_ROWS, np.int64)
    kinds[BEYOND] = LEFT_OUT if steps.by_character else 0
    orders = np.zeros(NUM_ROWS, np.uint8)
    if any(step["type"] in COMPOSING for step in steps.by_character):
        kinds[:NUM_TABLE_CHARACTERS], orders[:NUM_TABLE_CHARACTERS] = _composition()
    composition = Composition(kinds.copy(), orders.copy())
    kinds[[ord(c) for c in _WHITE_SPACE if c != " "]] |= BLANK * steps.strips_blanks
    kinds[ord("▁")] |= LEFT_OUT * steps.splits_words
    changed = []
    for row, text, image in zip([*codes, LINE_END], texts, images, strict=True):
        if image != text or row == LINE_END:
            changed.append(image.encode())
            lengths[row] = len(changed[-1])
            kinds[row], orders[row] = _kinds_of_image(image, steps, composition)
    for step in steps.by_character[:1]:
        if step["type"] == "Precompiled":
            kinds[:NUM_TABLE_CHARACTERS] |= _kinds_in_graphemes(step["precompiled_charsmap"])
    offsets = offsets_from_lengths(lengths).astype(np.int32)
    return CharacterTable(
        kinds, offsets, np.frombuffer(b"".join(changed) or b"\0", np.uint8), orders
    )


def _images(steps: Pipeline, texts: list[str]) -> list[str]:
    """What the library makes of each text, alone."""
    found = _asked(steps.by_character, texts)
    if max(map(len, found)) > _MAX_IMAGE_CHARACTERS:
        raise EngineError("the normalizer makes a long text of one character")
    if steps.splits_words:
        spaces = str.maketrans(dict.fromkeys(_WHITE_SPACE, " "))
        found = [image.translate(spaces) for image in found]
    return found


def _asked(steps: list[Json], texts: list[str]) -> list[str]:
    """What steps of the library make of each text, alone."""
    made = {"normalizer": {"type": "Sequence", "normalizers": steps}}
    normalizer = with_library(made, []).normalizer
    others = [text if text != _SEPARATOR else "" for text in texts]
    images = normalizer.normalize_str("".join(text + _SEPARATOR for text in others))
    found: list[str] = images.split(_SEPARATOR)[:-1]
    if len(found) != len(texts) or normalizer.normalize_str(_SEPARATOR) != _SEPARATOR:
        raise EngineError("the library makes several characters of one in an unknown way")
    return [image if text != _SEPARATOR else text for text, image in zip(texts, found, strict=True)]


def _kinds_of_image(image: str, steps: Pipeline, composition: Composition) -> tuple[int, int]:
    """The kind and the order of a character that has another image."""
    codes = [ord(character) for character in image]
    stripped = image.rstrip(_WHITE_SPACE if steps.strips_blanks else " ")
    known = "  " not in image and (stripped in {"", image} or not steps.rules & STRIP_END)
    known &= all(code < NUM_TABLE_CHARACTERS for code in codes)
    known &= not (steps.splits_words and "▁" in image)
    known = known and (len(codes) < 2 or not _moves(codes, composition))
    if not known:
        return CHANGED | LEFT_OUT, 0
    blank = CHANGED | BLANK * (steps.strips_blanks and not stripped)
    if not codes:
        return blank, 0
    return blank | int(composition.kinds[codes[-1]]), int(composition.orders[codes[-1]])


def _moves(codes: list[int], composition: Composition) -> bool:
    """Whether a character may become one with what is before it, or change places."""
    return bool((composition.kinds[codes] & COMPOSES).any() or composition.orders[codes].any())


def _composition() -> Composition:
    """What NFC does with neighbours; shape (NUM_TABLE_CHARACTERS,) each.

    A composition is found from what NFD takes apart: the last part is the one that COMPOSES, and
    what the parts before it are together is COMPOSED with it.
    """
    every = [chr(c) if c not in SURROGATES else " " for c in range(NUM_TABLE_CHARACTERS)]
    classes = characters().composition[:NUM_TABLE_CHARACTERS]
    kinds = COMPOSES * (classes == OTHERWISE).astype(np.uint8)
    orders = np.array([unicodedata.combining(character) for character in every], np.uint8)
    orders[classes == FIXED] = 0
    apart = _asked([{"type": "NFD"}], every)
    for code, parts in enumerate(apart):
        if len(parts) > 1:  # its last mark may change places with one that follows
            orders[code] = unicodedata.combining(parts[-1])
    before = {parts[:-1] for parts in apart if len(parts) > 1}
    for made in _asked([{"type": "NFC"}], sorted(before)):
        kinds[[ord(character) for character in made]] |= COMPOSED
    return Composition(kinds, orders)


def _kinds_in_graphemes(charsmap: str) -> UInt8Array:
    """Shape (NUM_TABLE_CHARACTERS,): which characters begin keys, and which belong to others."""
    every = [chr(c) if c not in SURROGATES else " " for c in range(NUM_TABLE_CHARACTERS)]
    begins = read_charsmap(base64.b64decode(charsmap)).begins_key(every)
    kinds = KEY * np.array(begins, np.uint8)
    joins = [unicodedata.category(c) in _JOINING_CATEGORIES for c in every]
    kinds |= JOINS * np.array(joins, np.uint8)
    kinds[list(_JOINING_OTHERS)] |= JOINS
    kinds[[ord(c) for c in JOINING if ord(c) < NUM_TABLE_CHARACTERS]] |= LEFT_OUT
    return kinds
