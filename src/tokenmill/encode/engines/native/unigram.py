"""Load Unigram models of a tokenizer.json, and run them in compiled code."""

from __future__ import annotations

import msgspec
import numpy as np

from tokenmill.core.records import BoolArray, Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.engines.native.character_table import compiled_normalizer
from tokenmill.encode.tokenizer_json import Json
from tokenmill.kernels.double_array import double_array
from tokenmill.kernels.normalizing import Normalizer
from tokenmill.kernels.unigram import UNKNOWN_PENALTY, Paths, Vocabulary, segment

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
