"""Reading and writing SentencePiece model files.

Source: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.encode.protobuf import read_fields, write_field
from tokenmill.encode.words.sentencepiece import Normalizer

PIECES, TRAINER, NORMALIZER = 1, 2, 3
"""Field numbers of `ModelProto`."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE, UNUSED = 1, 2, 3, 4, 6, 5
"""Types of pieces."""
UNIGRAM, BPE = 1, 2
"""Types of models."""
_TRAINED_WITH = {1, 2, 7, 18, 54}
"""Field numbers of `TrainerSpec` that only describe the training: input, model_prefix,
input_format, max_sentence_length and seed_sentencepieces_file."""
_MODEL_TYPE, _MARKS_ENDS, _BYTE_FALLBACK = 3, 24, 35
_ESCAPES_SPACES = 5
"""A field number of `NormalizerSpec`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of a model."""

    text: str
    score: float
    """A float32 value: for BPE, the negative merge order; for Unigram, a log probability."""
    type: int = NORMAL


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The parts of a model file that determine its encoding."""

    pieces: list[Piece]
    """Pieces, ordered by id."""
    type: int
    byte_fallback: bool
    normalizer: Normalizer
    marks_starts: bool
    """Spaces become ▁ (`escape_whitespaces`), and the one that is added comes before the text
    (no `treat_whitespace_as_suffix`)."""
    repeats_options: bool
    """The trainer's or the normalizer's options come in two messages. The library merges them;
    here the last one counts."""

    @property
    def unk_id(self) -> int:
        """The id of the unknown piece."""
        return next(i for i, piece in enumerate(self.pieces) if piece.type == UNKNOWN)


def read_model(data: bytes) -> ModelFile:
    """Read a model file.

    Raises:
        UserError: the file is not a model file, or it is damaged.
    """
    try:
        fields = list(read_fields(data))
        pieces = [_piece(_bytes(value)) for number, value in fields if number == PIECES]
        messages: dict[int, Any] = dict(fields)
        spec: dict[int, Any] = dict(read_fields(_bytes(messages.get(TRAINER, b""))))
        before = _bytes(messages.get(NORMALIZER, b""))
        normalizer = Normalizer.read(before)
        escapes = bool(dict(read_fields(before)).get(_ESCAPES_SPACES, 1))
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError("this is not a SentencePiece model", why=str(error)) from error
    if not any(piece.type == UNKNOWN for piece in pieces):
        raise UserError("this is not a SentencePiece model", why="it has no unknown piece")
    kind = spec.get(_MODEL_TYPE, UNIGRAM)
    falls_back, marks_starts = bool(spec.get(_BYTE_FALLBACK)), not spec.get(_MARKS_ENDS) and escapes
    numbers = [number for number, _ in fields]
    repeats = max(map(numbers.count, (TRAINER, NORMALIZER))) > 1
    return ModelFile(pieces, kind, falls_back, normalizer, marks_starts, repeats)


def published(data: bytes, normalizer_spec: bytes, spellings: Mapping[str, str]) -> bytes:
    """Return a trained model with another normalizer and without traces of the training.

    `spellings` maps placeholder characters in its pieces to the characters they stand for.
    """
    out = []
    for number, value in read_fields(data):
        if number == TRAINER:
            value = _without(_bytes(value), _TRAINED_WITH)
        elif number == NORMALIZER:
            value = normalizer_spec
        elif number == PIECES and spellings:
            value = _respelled(_bytes(value), spellings)
        out.append(write_field(number, value))
    return b"".join(out)


def _piece(data: bytes) -> Piece:
    text, score, kind = "", 0.0, NORMAL
    for number, value in read_fields(data):
        match number, value:
            case 1, bytes():
                text = value.decode()
            case 2, float():
                score = value
            case 3, int():
                kind = value
    return Piece(text, score, kind)


def _respelled(data: bytes, spellings: Mapping[str, str]) -> bytes:
    table = str.maketrans(dict(spellings))

    def fields() -> Iterator[bytes]:
        for number, value in read_fields(data):
            is_text = number == 1 and isinstance(value, bytes)
            text = _bytes(value).decode().translate(table).encode() if is_text else value
            yield write_field(number, text)

    return b"".join(fields())


def _without(data: bytes, numbers: set[int]) -> bytes:
    return b"".join(write_field(n, value) for n, value in read_fields(data) if n not in numbers)


def _bytes(value: int | float | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("expected bytes, got a number")
    return value
