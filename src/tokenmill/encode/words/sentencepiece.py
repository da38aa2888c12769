"""SentencePiece's model files: their pieces and normalizers, and the protobuf format they use.

SentencePiece replaces text by a table (longest key first), joins spaces, strips both ends, adds a
space before the text, replaces spaces with ▁, and splits before each. `Precompiled` of the
`tokenizers` library has the same table but looks up keys by grapheme. The two differ if a grapheme
of several code points starts with or contains a key: on 15 of 2,009 lines of Bengali in FLORES, and
on no line of most languages. With the rules that fold case, it turns "E" with a combining mark into
"e" without the mark.

Sources: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto,
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.encode.tokenizer_json import MARK, Json
from tokenmill.encode.words.patterns import FIRST_SPACE, LAST_SPACE

NormalizationRule = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]
RULES: tuple[NormalizationRule, ...] = get_args(NormalizationRule)

_NAME, _TABLE, _ADD_PREFIX, _JOIN_SPACES = 1, 2, 3, 4
"""Fields of `NormalizerSpec` in sentencepiece_model.proto."""

PIECES, TRAINER, NORMALIZER = 1, 2, 3
"""Field numbers of `ModelProto`."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE, UNUSED = 1, 2, 3, 4, 6, 5
"""Types of pieces."""
UNIGRAM, BPE = 1, 2
"""Types of models."""
_TRAINED_WITH = {1, 2, 7, 18}
"""Field numbers of `TrainerSpec` that only describe the training: input, model_prefix,
input_format and max_sentence_length."""
_STORED_OPTIONS = {
    "vocab_size": 4,
    "character_coverage": 10,
    "num_threads": 16,
    "max_sentencepiece_length": 20,
    "split_by_unicode_script": 21,
    "split_digits": 25,
    "control_symbols": 30,
    "byte_fallback": 35,
    "unk_id": 40,
    "bos_id": 41,
    "eos_id": 42,
    "pad_id": 43,
    "unk_piece": 45,
    "bos_piece": 46,
    "eos_piece": 47,
    "pad_piece": 48,
}
"""Field numbers of `TrainerSpec`, in their order."""
_MODEL_TYPE, _MARKS_ENDS, _BYTE_FALLBACK = 3, 24, 35
_ESCAPES_SPACES = 5
"""A field number of `NormalizerSpec`."""
Field = tuple[int, int | float | bytes]
"""A field's number and its value: a varint, a 32-bit float, or bytes."""
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Normalizer:
    """The normalizer of a SentencePiece model."""

    name: str
    table: bytes
    """A double-array trie of replacements; b"" for none."""
    add_prefix: bool = True
    """Whether to add a space before the text (`add_dummy_prefix`)."""
    join_spaces: bool = True
    """Whether to join spaces and strip both ends (`remove_extra_whitespaces`)."""

    @classmethod
    def read(cls, message: bytes) -> Normalizer:
        """Read the normalizer from its message in a model file.

        Raises:
            ValueError: the bytes are not a valid message.
        """
        fields: dict[int, Any] = dict(read_fields(message))
        flags = [bool(fields.get(number, True)) for number in (_ADD_PREFIX, _JOIN_SPACES)]
        return cls(fields.get(_NAME, b"").decode(), fields.get(_TABLE, b""), *flags)

    def message(self) -> bytes:
        """Return the message that the library writes into a model file."""
        flags = {_ADD_PREFIX: self.add_prefix, _JOIN_SPACES: self.join_spaces}
        fields = [write_field(_NAME, self.name.encode()), write_field(_TABLE, self.table)]
        fields += [write_field(number, 0) for number, is_set in flags.items() if not is_set]
        return b"".join(fields)

    def steps(self) -> list[Json]:
        """Return the equivalent steps of the `tokenizers` library, before `metaspace`.

        Results only differ as described at the top of this module; for texts that end in U+0085,
        which the library treats as white space; for texts that begin or end with ▁ itself; and
        without `join_spaces`, for texts that begin with a space or have a line that ends in CR LF.
        """
        steps: list[Json] = []
        if self.table:
            encoded = base64.b64encode(self.table).decode()
            steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
        if not self.join_spaces:
            return steps
        steps.append(_replace({"Regex": " {2,}"}, " "))
        if self.name.startswith("nmt"):  # all white space has become spaces
            strip = {"type": "Strip", "strip_left": not self.add_prefix, "strip_right": True}
            return [*steps, strip]
        # Metaspace merges the first space and its own prefix into one ▁.
        ends = [LAST_SPACE] if self.add_prefix else [FIRST_SPACE, LAST_SPACE]
        return steps + [_replace({"Regex": pattern}, "") for pattern in ends]


def named_normalizer(
    rule: NormalizationRule, add_prefix: bool = True, join_spaces: bool = True
) -> Normalizer:
    """Return the normalizer of one of SentencePiece's rules.

    Raises:
        UserError: sentencepiece is not installed.
    """
    if rule == "identity":
        return Normalizer(rule, b"", add_prefix, join_spaces)
    try:
        import sentencepiece
    except ImportError as error:
        hint = install_command("sentencepiece")
        raise UserError(
            "SentencePiece's rules need the package sentencepiece, which is not installed",
            hint=hint,
        ) from error
    message = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_normalizer_spec()
    return Normalizer(rule, Normalizer.read(message).table, add_prefix, join_spaces)


def metaspace(scheme: Literal["always", "first", "never"]) -> Json:
    """Return a pre-tokenizer that spells spaces as ▁, splits before each, and may prepend one."""
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": True}


def _replace(pattern: Json, content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}


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


def write_model(pieces: Sequence[Piece], options: Mapping[str, Any]) -> bytes:
    """Return a Unigram model file with an empty normalizer.

    `options` are the library's, by name; those that a model stores must be there.
    """
    out = []
    for piece in pieces:
        kind = [] if piece.type == NORMAL else [write_field(3, piece.type)]
        parts = [write_field(1, piece.text.encode()), write_field(2, piece.score), *kind]
        out.append(write_field(PIECES, b"".join(parts)))
    spec = [write_field(_MODEL_TYPE, UNIGRAM)]
    for name, number in _STORED_OPTIONS.items():
        values = options[name] if isinstance(options[name], list) else [options[name]]
        spec += [_write_option(number, value) for value in values]
    return b"".join([*out, write_field(TRAINER, b"".join(spec)), write_field(NORMALIZER, b"")])


def _write_option(number: int, value: str | int | float) -> bytes:
    if isinstance(value, str):
        return write_field(number, value.encode())
    return write_field(number, value if value >= 0 else (1 << 64) + int(value))


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


def read_fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of one message, in order.

    Raises:
        ValueError: the bytes are not a valid message.
    """
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == VARINT:
            value, place = _varint(data, place)
            yield key >> 3, value
            continue
        size = {FIXED_64: 8, FIXED_32: 4}.get(key & 7)
        if key & 7 == BYTES:
            size, place = _varint(data, place)
        if size is None or place + size > len(data):
            raise ValueError(f"invalid protobuf field at byte {place}")
        payload, place = data[place : place + size], place + size
        yield key >> 3, struct.unpack("<f", payload)[0] if key & 7 == FIXED_32 else payload


def write_field(number: int, value: int | float | bytes) -> bytes:
    """Return a field as bytes; an int must not be negative."""
    if isinstance(value, bytes):
        return _write_varint(number << 3 | BYTES) + _write_varint(len(value)) + value
    if isinstance(value, float):
        return _write_varint(number << 3 | FIXED_32) + struct.pack("<f", value)
    return _write_varint(number << 3 | VARINT) + _write_varint(int(value))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(data):
            break
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError(f"invalid protobuf number at byte {place}")


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
