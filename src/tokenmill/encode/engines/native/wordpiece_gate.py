"""Which WordPiece tokenizers the native engine may be given: those with the steps of BERT."""

from __future__ import annotations

from tokenmill.encode.engines.chunks.locality import Json, locality_objection, matched_contents


def word_piece_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Why native may not have a WordPiece tokenizer; "" where it may."""
    kinds = [(tokenizer.get(step) or {}).get("type") for step in ("normalizer", "pre_tokenizer")]
    if kinds != ["BertNormalizer", "BertPreTokenizer"]:
        return "WordPiece with other steps than BERT's"
    if not _is_complete(tokenizer["model"]):
        return "a WordPiece model without its unknown token"
    if objection := locality_objection(tokenizer, control_tokens):
        return objection
    matched = matched_contents(tokenizer, control_tokens)
    return "added tokens that are looked for in texts" if matched else ""


def _is_complete(model: Json) -> bool:
    prefix, most = map(model.get, ("continuing_subword_prefix", "max_input_chars_per_word"))
    known = model.get("unk_token") in model.get("vocab", {})
    return known and isinstance(prefix, str) and isinstance(most, int)
