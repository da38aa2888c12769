"""Decide which SentencePiece models the native engine encodes exactly, without importing numba.

Texts can be cut into chunks if only pieces can span a cut. So the model must not have a table of
characters or join spaces (`identity` without `remove_extra_whitespaces`, like Llama 2's).

Unigram models are left to the library, which adds scores in float32 over the whole text: a near tie
in one word is decided by the rounding of all words before it. Of 431 documents in many languages,
21 % had such a word, and these held 90 % of the bytes (16,000 pieces).
"""

from __future__ import annotations

import math

from tokenmill.core.errors import UserError
from tokenmill.encode.engines.native.bpe_gate import MARK
from tokenmill.encode.words.sentencepiece_model import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    USER_DEFINED,
    ModelFile,
    read_model,
)

_LONGEST_PIECE = 128
"""Characters. The check looks at every position in a piece; the trainer's default limit is 16."""
_LONGEST_SYMBOL = 64
"""Characters. The library finds at most this many user-defined symbols at one position."""
_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


def sentencepiece_objection(model: bytes) -> str:
    """Return why native cannot encode a SentencePiece model exactly; "" if it can."""
    try:
        found = read_model(model)
        return (
            _pieces_objection(found)
            or _steps_objection(found)
            or ("" if found.type == BPE else f"a model of type {found.type}")
        )
    except (UserError, ValueError) as error:
        return f"an unreadable model ({error})"


def parts_of(text: str, known: set[str]) -> list[tuple[str, str]]:
    """Return the pairs of known pieces that BPE can merge to a piece."""
    splits = ((text[:i], text[i:]) for i in range(1, len(text)))
    return [pair for pair in splits if known.issuperset(pair)]


def _pieces_objection(model: ModelFile) -> str:
    pieces = model.pieces
    normal = {piece.text for piece in pieces if piece.type == NORMAL}
    named = {piece.text for piece in pieces if piece.type == BYTE}
    symbols = {piece.text for piece in pieces if piece.type == USER_DEFINED}
    characters = {character for text in normal for character in text}
    checks = {
        "two sets of trainer or normalizer options": model.repeats_options,
        "a piece of an unsupported type": any(
            piece.type not in {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE} for piece in pieces
        ),
        "pieces with equal texts": len({piece.text for piece in pieces}) < len(pieces),
        "a piece that is too long": any(len(piece.text) > _LONGEST_PIECE for piece in pieces),
        "a user-defined symbol that is too long": any(
            len(symbol) > _LONGEST_SYMBOL for symbol in symbols
        ),
        "two unknown pieces": sum(piece.type == UNKNOWN for piece in pieces) != 1,
        "an empty piece": any(not piece.text or "\0" in piece.text for piece in pieces),
        "a control token of one character": any(
            len(piece.text) == 1 and piece.type not in {NORMAL, USER_DEFINED} for piece in pieces
        ),
        "bytes that are missing": named != (_BYTES if model.byte_fallback else set()),
        "a ▁ that is missing from the pieces": MARK not in normal | symbols,
        "a piece with a character outside the pieces": not normal | symbols >= characters,
        "a score that is not a finite number": not all(
            math.isfinite(piece.score) for piece in pieces
        ),
    }
    return next((name for name, found in checks.items() if found), "")


def _steps_objection(model: ModelFile) -> str:
    if not model.marks_starts:
        return "spaces that do not become a ▁ before a word"
    if model.normalizer.table:
        return "a normalizer with a table of characters"
    if model.normalizer.join_spaces:
        return "remove_extra_whitespaces"
    return ""
