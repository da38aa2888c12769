"""Encode messages to and from workers as JSON, one object per line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec


def encode(value: object) -> bytes:
    """Encode a value as a line."""
    return msgspec.json.encode(value, enc_hook=_encode_path) + b"\n"


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder for lines with a type, or with one of several types."""
    return msgspec.json.Decoder(kind, dec_hook=_decode_path)


def _encode_path(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"no JSON for {type(value)}")


def _decode_path(kind: type, value: object) -> object:
    if kind is Path:
        return Path(str(value))
    raise NotImplementedError(f"no {kind} from JSON")
