"""Decide which SentencePiece models the native engine encodes exactly, without importing numba.

Texts can be cut into chunks if only pieces can span a cut. So the model must not have a table of
characters or join spaces (`identity` without `remove_extra_whitespaces`, like Llama 2's).
"""

from __future__ import annotations

import math
from collections import Counter

from tokenmill.encode.engines.native.bpe_gate import MARK
from tokenmill.errors import UserError
from tokenmill.words.sentencepiece_model import (
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
_BYTES = {f"<0x{byte:02X}>" for byte in range(256)}


def sentencepiece_objection(model: bytes) -> str:
    """Return why native cannot encode a SentencePiece model exactly; "" if it can."""
    try:
        found = read_model(model)
        return (
            _pieces_objection(found)
            or _steps_objection(found)
            or (_bpe_objection(found) if found.type == BPE else f"a model of type {found.type}")
        )
    except (UserError, ValueError) as error:
        return f"an unreadable model ({error})"


def parts_of(text: str, known: set[str]) -> list[tuple[str, str]]:
    """Return the pairs of known pieces that BPE can merge to a piece."""
    splits = ((text[:i], text[i:]) for i in range(1, len(text)))
    return [pair for pair in splits if known.issuperset(pair)]


def user_symbols(model: ModelFile) -> list[str]:
    """Return the user-defined symbols, which are matched in a text first."""
    return [piece.text for piece in model.pieces if piece.type == USER_DEFINED]


def _pieces_objection(model: ModelFile) -> str:
    pieces = model.pieces
    normal = {piece.text for piece in pieces if piece.type == NORMAL}
    named = {piece.text for piece in pieces if piece.type == BYTE}
    characters = {character for text in normal for character in text}
    checks = {
        "two sets of trainer or normalizer options": model.repeats_options,
        "a piece of an unsupported type": any(
            piece.type not in {NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE} for piece in pieces
        ),
        "pieces with equal texts": len({piece.text for piece in pieces}) < len(pieces),
        "a piece that is too long": any(len(piece.text) > _LONGEST_PIECE for piece in pieces),
        "two unknown pieces": sum(piece.type == UNKNOWN for piece in pieces) != 1,
        "an empty piece": any(not piece.text or "\0" in piece.text for piece in pieces),
        "a control token of one character": any(
            len(piece.text) == 1 and piece.type not in {NORMAL, USER_DEFINED} for piece in pieces
        ),
        "bytes that are missing": named != (_BYTES if model.byte_fallback else set()),
        "a ▁ that is missing from the pieces": MARK not in normal,
        "a piece with a character outside the pieces": not normal >= characters,
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
    if any(" " in symbol or MARK in symbol for symbol in user_symbols(model)):
        return "a user-defined symbol with a space"
    return ""


def _bpe_objection(model: ModelFile) -> str:
    # With equal scores, the library merges the leftmost pair, but `CharacterBpe` ranks pieces.
    normal = [piece for piece in model.pieces if piece.type == NORMAL]
    known, times = {piece.text for piece in normal}, Counter(piece.score for piece in normal)
    tied = (piece for piece in normal if times[piece.score] > 1)
    made = Counter(piece.score for piece in tied if parts_of(piece.text, known))
    return "pieces with equal scores" if max(made.values(), default=0) > 1 else ""
