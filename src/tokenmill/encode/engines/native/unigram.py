"""Unigram models of a tokenizer.json, in compiled code.

The library is asked what the normalizer does with each character.

Only steps that change one character at a time are admitted, with these exceptions:

    Precompiled   looks up short graphemes as a whole, so a key before a mark is left out
    NFC, NFKC     compose, so characters that may compose are left out (`words/characters.py`)
    NFKD          reorders marks, so those that StripAccents does not drop are left out (ALBERT)
    others        before Precompiled: all that may join a grapheme afterwards is left out
    Replace       of two characters: both together are left out
    spaces        are joined, stripped and marked by separate rules
"""

from __future__ import annotations

import unicodedata
from itertools import takewhile
from typing import NamedTuple

import msgspec
import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import BoolArray, Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engines.locality import JOINING, begin_keys
from tokenmill.encode.engines.native.pipeline import (
    COMPOSING,
    Pipeline,
    read_pipeline,
    replaces_pair,
)
from tokenmill.encode.tokenizer_json import Json, with_library
from tokenmill.encode.words.characters import SURROGATES, WHITE_SPACE, characters
from tokenmill.kernels.constants import COMPOSED as OTHERWISE
from tokenmill.kernels.constants import FIXED, STRIP_END
from tokenmill.kernels.double_array import double_array
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
from tokenmill.kernels.unigram import UNKNOWN_PENALTY, Paths, Vocabulary, segment

_SEPARATOR = "\u3401"
"""A separator that no normalizer produces or changes; this is checked."""
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
    kinds[[ord(c) for c in WHITE_SPACE if c != " "]] |= BLANK * steps.strips_blanks
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
        spaces = str.maketrans(dict.fromkeys(WHITE_SPACE, " "))
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
    stripped = image.rstrip(WHITE_SPACE if steps.strips_blanks else " ")
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
    kinds = KEY * np.array(begin_keys(charsmap, every), np.uint8)
    kinds |= JOINS * np.array(list(map(_joins, every)), np.uint8)
    kinds[[ord(c) for c in JOINING if ord(c) < NUM_TABLE_CHARACTERS]] |= LEFT_OUT
    return kinds


def _joins(character: str) -> bool:
    """Whether a character may belong to the grapheme before it, in some version of Unicode."""
    in_category = unicodedata.category(character) in _JOINING_CATEGORIES
    return in_category or ord(character) in _JOINING_OTHERS


_MAX_SIGNIFICAND = (1 << 64) - 1
_LARGEST_POWER = 308
_EXACT_DIGITS = 15
"""All parsers agree on decimals with at most this many digits."""


class _Model(msgspec.Struct):
    unk_id: int
    vocab: list[tuple[str, msgspec.Raw]]
    byte_fallback: bool = False


class _File(msgspec.Struct):
    model: _Model


def unigram_model(tokenizer_json: bytes, tokenizer: Json) -> UnigramModel:
    """Return the compiled model of a tokenizer that `unigram_objection` admits."""
    model = msgspec.json.decode(tokenizer_json, type=_File).model
    ids = {piece.encode(): i for i, (piece, _) in enumerate(model.vocab)}  # the last one counts
    scores = np.array([read_score(bytes(score)) for _, score in model.vocab])
    byte_ids = np.full(256, -1, np.int32)
    if model.byte_fallback:
        byte_ids[:] = [ids.get(b"<0x%02X>" % byte, -1) for byte in range(256)]
    vocabulary = Vocabulary(
        double_array(ids), np.append(scores, scores.min() - UNKNOWN_PENALTY), model.unk_id, byte_ids
    )
    return UnigramModel(compiled_normalizer(tokenizer), vocabulary)


def read_score(number: bytes) -> float:
    """Parse a JSON number exactly like Rust's serde_json, including its rounding errors.

    serde_json keeps as many digits as fit in 64 bits and divides by a power of ten, so it rounds
    twice (`serde_json/src/de.rs`: `parse_decimal`, `f64_from_parts`).
    """
    mantissa, _, power = number.lower().partition(b"e")
    whole, _, decimals = mantissa.lstrip(b"-").partition(b".")
    if len(whole) + len(decimals) <= _EXACT_DIGITS and not power:
        return float(number)
    significand, exponent = int(whole), int(power or 0)
    for digit in decimals:
        longer = 10 * significand + digit - ord("0")
        if longer > _MAX_SIGNIFICAND:
            break
        significand, exponent = longer, exponent - 1
    value = float(significand)
    while exponent < -_LARGEST_POWER and value:
        value, exponent = value / 1e308, exponent + _LARGEST_POWER
    power_of_ten = float(f"1e{min(abs(exponent), _LARGEST_POWER)}")
    value = value / power_of_ten if exponent < 0 else value * power_of_ten
    return -value if number.startswith(b"-") else value


class UnigramModel:
    """Runs the normalizer, pre-tokenizer and model of a tokenizer in compiled code."""

    def __init__(self, normalizer: Normalizer, vocabulary: Vocabulary) -> None:
        self._normalizer = normalizer
        self._vocabulary = vocabulary

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Return the ids of every chunk, and which chunks are left to the reference."""
        text, offsets, left_out = self._normalizer.normalize(data, places)
        ids, edges = np.empty(len(text), np.uint32), np.zeros(len(offsets), np.int64)
        longest = int(np.diff(offsets).max(initial=0))
        paths = Paths(np.empty(longest + 1), np.empty((longest + 1, 2), np.int32))
        segment(text, offsets, self._vocabulary, paths, ids, edges)
        return TokenBatch(ids[: edges[-1]], edges), left_out
