"""Decide which WordPiece and WordLevel tokenizers the native engine encodes exactly.

All their steps must look at one character at a time.
"""

from __future__ import annotations

from tokenmill.encode.engines.chunks.locality import (
    Json,
    locality_objection,
    matched_contents,
    normalizers,
    pre_tokenizers,
)

_NORMALIZERS: list[list[str]] = [[], ["Lowercase"], ["BertNormalizer"]]
_PRE_TOKENIZERS = [["BertPreTokenizer"], ["Whitespace"], ["WhitespaceSplit"]]


def word_piece_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode a WordPiece tokenizer exactly; "" if it can."""
    kinds = [(tokenizer.get(step) or {}).get("type") for step in ("normalizer", "pre_tokenizer")]
    if kinds != ["BertNormalizer", "BertPreTokenizer"]:
        return "WordPiece with steps other than BERT's"
    if not _is_complete(tokenizer["model"]):
        return "a WordPiece model without its unknown token"
    return _texts_objection(tokenizer, control_tokens)


def word_level_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why native cannot encode a WordLevel tokenizer exactly; "" if it can."""
    before = [step["type"] for step in normalizers(tokenizer)]
    if before not in _NORMALIZERS:
        return "WordLevel with an unknown normalizer"
    if [step["type"] for step in pre_tokenizers(tokenizer)] not in _PRE_TOKENIZERS:
        return "WordLevel with an unknown pre-tokenizer"
    model = tokenizer["model"]
    if model.get("unk_token") not in model.get("vocab", {}):
        return "a WordLevel model without its unknown token"
    return _texts_objection(tokenizer, control_tokens)


def _texts_objection(tokenizer: Json, control_tokens: bool) -> str:
    if objection := locality_objection(tokenizer, control_tokens):
        return objection
    matched = matched_contents(tokenizer, control_tokens)
    return "added tokens matched in texts" if matched else ""


def _is_complete(model: Json) -> bool:
    prefix, most = map(model.get, ("continuing_subword_prefix", "max_input_chars_per_word"))
    known = model.get("unk_token") in model.get("vocab", {})
    return known and isinstance(prefix, str) and isinstance(most, int)
