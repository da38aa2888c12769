"""Ask the library what the normalizer of a tokenizer.json does with each character.

Only steps that change one character at a time are admitted, with these exceptions:

    Precompiled   looks up short graphemes as a whole, so a key before a mark is left out
    NFC, NFKC     compose, so characters that may compose are left out (`words/characters.py`)
    NFKD          reorders marks, so those that StripAccents does not drop are left out (ALBERT)
    others        before Precompiled: all that may join a grapheme afterwards is left out
    Replace       of two characters: both together are left out
    spaces        are joined, stripped and marked by separate rules
"""

from __future__ import annotations

import base64
import unicodedata
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engines.locality import JOINING, read_charsmap
from tokenmill.encode.engines.native.pipeline import (
    COMPOSING,
    Pipeline,
    read_pipeline,
    replaces_pair,
)
from tokenmill.encode.tokenizer_json import Json, with_library
from tokenmill.encode.words.characters import SURROGATES, characters
from tokenmill.kernels.constants import COMPOSED as OTHERWISE
from tokenmill.kernels.constants import FIXED, STRIP_END
from tokenmill.kernels.normalized_words import NUM_TABLE_CHARACTERS
from tokenmill.kernels.normalizing import (
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
    CharacterTable,
    Normalizer,
)

_SEPARATOR = "\u3401"
"""A separator that no normalizer produces or changes; this is checked."""
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""The characters with Unicode's property White_Space."""
_JOINING_CATEGORIES = {"Mn", "Mc", "Me", "Cf", "Cn"}
_JOINING_OTHERS = {0x0E33, 0x0EB3, 0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400)}
"""With the categories above, a superset of Extend, SpacingMark and ZWJ (Unicode annex 29), also for
later versions of Unicode."""
_MAX_IMAGE_CHARACTERS = 64


class Composition(NamedTuple):
    """How characters compose and reorder with their neighbours; see `CharacterTable`."""

    kinds: UInt8Array
    orders: UInt8Array


def compiled_normalizer(tokenizer: Json) -> Normalizer:
    """Return the steps before the model as a compiled normalizer.

    Raises:
        EngineError: the steps are not supported, or treat characters in an unexpected way.
    """
    steps = read_pipeline(tokenizer)
    if isinstance(steps, str):
        raise EngineError("native does not support the tokenizer's steps", why=steps)
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
    kinds[:NUM_TABLE_CHARACTERS] |= _kinds_beside_others(steps.by_character)
    offsets = offsets_from_lengths(lengths).astype(np.int32)
    return CharacterTable(
        kinds, offsets, np.frombuffer(b"".join(changed) or b"\0", np.uint8), orders
    )


def _images(steps: Pipeline, texts: list[str]) -> list[str]:
    """Return the image of each text, encoded alone."""
    found = _asked(steps.by_character, texts)
    if max(map(len, found)) > _MAX_IMAGE_CHARACTERS:
        raise EngineError("the normalizer turns one character into a long text")
    if steps.splits_words:
        spaces = str.maketrans(dict.fromkeys(_WHITE_SPACE, " "))
        found = [image.translate(spaces) for image in found]
    return found


def _asked(steps: list[Json], texts: list[str]) -> list[str]:
    """Return what the library's steps make of each text alone, in one call."""
    made = {"normalizer": {"type": "Sequence", "normalizers": steps}}
    normalizer = with_library(made, []).normalizer
    others = [text if text != _SEPARATOR else "" for text in texts]
    images = normalizer.normalize_str("".join(text + _SEPARATOR for text in others))
    found: list[str] = images.split(_SEPARATOR)[:-1]
    if len(found) != len(texts) or normalizer.normalize_str(_SEPARATOR) != _SEPARATOR:
        raise EngineError("the library normalizes some characters in an unexpected way")
    return [image if text != _SEPARATOR else text for text, image in zip(texts, found, strict=True)]


def _kinds_of_image(image: str, steps: Pipeline, composition: Composition) -> tuple[int, int]:
    """Return the kind and the order of a character that the normalizer changes."""
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
    """Whether a character may compose with the one before it, or be reordered."""
    return bool((composition.kinds[codes] & COMPOSES).any() or composition.orders[codes].any())


def _composition() -> Composition:
    """Return what NFC does with neighbours, as arrays of shape (NUM_TABLE_CHARACTERS,).

    Compositions are the inverse of NFD: the last part of a decomposition COMPOSES, and the other
    parts, composed, are COMPOSED with it.
    """
    every = [chr(c) if c not in SURROGATES else " " for c in range(NUM_TABLE_CHARACTERS)]
    classes = characters().composition[:NUM_TABLE_CHARACTERS]
    kinds = COMPOSES * (classes == OTHERWISE).astype(np.uint8)
    orders = np.array([unicodedata.combining(character) for character in every], np.uint8)
    orders[classes == FIXED] = 0
    apart = _asked([{"type": "NFD"}], every)
    for code, parts in enumerate(apart):
        if len(parts) > 1:  # its last mark may swap with a mark that follows
            orders[code] = unicodedata.combining(parts[-1])
    before = {parts[:-1] for parts in apart if len(parts) > 1}
    for made in _asked([{"type": "NFC"}], sorted(before)):
        kinds[[ord(character) for character in made]] |= COMPOSED
    return Composition(kinds, orders)


def _kinds_beside_others(steps: list[Json]) -> UInt8Array:
    """Return how characters depend on their neighbours; shape (NUM_TABLE_CHARACTERS,)."""
    every = [chr(c) if c not in SURROGATES else " " for c in range(NUM_TABLE_CHARACTERS)]
    kinds = np.zeros(NUM_TABLE_CHARACTERS, np.uint8)
    for first, second in (step["pattern"]["String"] for step in steps if replaces_pair(step)):
        kinds[ord(first)] |= KEY
        kinds[ord(second)] |= JOINS
    types = [step["type"] for step in steps]
    if types[:1] == ["Precompiled"]:
        kinds |= _kinds_in_graphemes(steps[0]["precompiled_charsmap"], every)
    elif not {"Precompiled", "StripAccents"}.isdisjoint(types):
        before = takewhile(lambda step: step["type"] != "Precompiled", steps)
        images = _asked(list(before), every)
        joining = [any(c in "\r" + JOINING or _joins(c) for c in image) for image in images]
        kinds |= LEFT_OUT * np.array(joining, np.uint8)
    return kinds


def _kinds_in_graphemes(charsmap: str, every: list[str]) -> UInt8Array:
    """Return which characters begin keys, and which join others; shape (NUM_TABLE_CHARACTERS,)."""
    begins = read_charsmap(base64.b64decode(charsmap)).begins_key(every)
    kinds = KEY * np.array(begins, np.uint8)
    kinds |= JOINS * np.array(list(map(_joins, every)), np.uint8)
    kinds[[ord(c) for c in JOINING if ord(c) < NUM_TABLE_CHARACTERS]] |= LEFT_OUT
    return kinds


def _joins(character: str) -> bool:
    """Whether a character may belong to the grapheme before it, in some version of Unicode."""
    in_category = unicodedata.category(character) in _JOINING_CATEGORIES
    return in_category or ord(character) in _JOINING_OTHERS
