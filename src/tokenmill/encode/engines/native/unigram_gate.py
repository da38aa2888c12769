"""Decide which Unigram tokenizers the native engine encodes exactly."""

from __future__ import annotations

from tokenmill.encode.engines.chunks.locality import (
    Json,
    locality_objection,
    matched_contents,
)
from tokenmill.encode.engines.native.pipeline import pipeline_objection

_FIELDS = {"type", "unk_id", "vocab", "byte_fallback"}


def unigram_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode a Unigram tokenizer exactly; "" if it can."""
    return (
        locality_objection(tokenizer, control_tokens)
        or pipeline_objection(tokenizer)
        or _model_objection(tokenizer["model"])
        or ("added tokens matched in texts" if matched_contents(tokenizer, control_tokens) else "")
    )


def _model_objection(model: Json) -> str:
    # Without an unknown token, the library fails on some texts; the reference raises that error.
    if unknown := model.keys() - _FIELDS:
        return f"a Unigram model with {min(unknown)}"
    unk_id = model.get("unk_id")
    if not isinstance(unk_id, int) or not 0 <= unk_id < len(model.get("vocab") or ()):
        return "a Unigram model without an unknown token"
    return ""
