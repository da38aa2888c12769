"""Read a tokenizer.json, whose model may not name its type."""

from __future__ import annotations

from typing import Any

import msgspec

Json = dict[str, Any]

_WORD_PIECE = ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")


def read_tokenizer(data: bytes) -> Json:
    """Return the contents of a tokenizer.json, with the type of its model filled in.

    Raises:
        MsgspecError: it is not a JSON object.
    """
    tokenizer: Json = msgspec.json.decode(data, type=dict)
    model = tokenizer.get("model")
    if isinstance(model, dict) and "type" not in model:
        model["type"] = _type_by_fields(model)
    return tokenizer


def _type_by_fields(model: Json) -> str:
    """Return the type that the library assumes for the model of an old file, by its fields."""
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    if model.get("merges") is not None:
        return "BPE"
    is_word_piece = all(model.get(field) is not None for field in _WORD_PIECE)
    return "WordPiece" if is_word_piece else "WordLevel"
