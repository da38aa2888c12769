"""Allow-lists: which tokenizer.json an engine may be given at all.

Engines load more than they encode exactly, and say nothing. So each has a short list of what it was
found to encode exactly (code point by code point, and by fuzzing); anything else goes to the next
engine. A list can only veto: calibration and audits follow.
"""

from __future__ import annotations

from typing import Any

from tokenmill.encode.encodings import LLAMA3_SPLIT

Json = dict[str, Any]

_QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
EXACT_SPLITS = {LLAMA3_SPLIT, _QWEN2_SPLIT}


def fastokens_objection(tokenizer: Json) -> str:
    """Why fastokens may not have this tokenizer; "" where it may."""
    return (
        _common_objection(tokenizer)
        or _byte_level_objection(tokenizer)
        or _normalizer_objection(tokenizer, _is_sentencepiece(tokenizer))
    )


def gigatoken_objection(tokenizer: Json) -> str:
    """Why gigatoken may not have this tokenizer; "" where it may."""
    if objection := _common_objection(tokenizer):
        return objection
    if not _is_sentencepiece(tokenizer):
        normalizer = "a normalizer" if tokenizer.get("normalizer") else ""
        return _byte_level_objection(tokenizer) or normalizer
    if missing := [b for b in range(256) if f"<0x{b:02X}>" not in tokenizer["model"]["vocab"]]:
        return f"{len(missing)} byte tokens are missing from the vocabulary"
    kinds = {member["type"] for member in _members(tokenizer.get("normalizer"), "normalizers")}
    known = {"Prepend", "Replace", "Strip", "Precompiled"}
    return f"normalizer {sorted(kinds - known)[0]}" if kinds - known else ""


def _common_objection(tokenizer: Json) -> str:
    model = tokenizer["model"]
    added = tokenizer.get("added_tokens") or []
    merges = [tuple(m) if isinstance(m, list) else m for m in model.get("merges", ())]
    ids = {token["content"]: token["id"] for token in added}
    checks = {
        f"model {model.get('type')}": model.get("type", "BPE") != "BPE" or "merges" not in model,
        "dropout": bool(model.get("dropout")),
        "a subword prefix": bool(model.get("continuing_subword_prefix")),
        "a word suffix": bool(model.get("end_of_word_suffix")),
        "duplicate merges": len(set(merges)) != len(merges),
        "a single_word added token": any(token.get("single_word") for token in added),
        "an added token that is not ASCII": not all(content.isascii() for content in ids),
        "an added token whose id is not its own": any(
            model["vocab"].get(content, i) != i for content, i in ids.items()
        ),
    }
    return next((name for name, found in checks.items() if found), "")


def _byte_level_objection(tokenizer: Json) -> str:
    if _is_sentencepiece(tokenizer):
        return "" if tokenizer.get("pre_tokenizer") is None else "a pre-tokenizer"
    members = _members(tokenizer.get("pre_tokenizer"), "pretokenizers")
    kinds = [member["type"] for member in members]
    if kinds == ["ByteLevel"]:
        return "" if members[0].get("use_regex", True) else "ByteLevel without its regex"
    if kinds != ["Split", "ByteLevel"]:
        return f"pre-tokenizer {' + '.join(kinds) or 'none'}"
    split, byte_level = members
    removed = split.get("behavior") == "Removed" and split.get("invert")
    if split.get("behavior") != "Isolated" and not removed:
        return f"split behaviour {split.get('behavior')}"
    if split["pattern"].get("Regex") not in EXACT_SPLITS:
        return "a split pattern that it was not measured on"
    plain = not byte_level.get("use_regex", True) and not byte_level.get("add_prefix_space", True)
    return "" if plain else "ByteLevel that splits again"


def _normalizer_objection(tokenizer: Json, sentencepiece: bool) -> str:
    allowed = {"Prepend", "Replace"} if sentencepiece else {"NFC"}
    for member in _members(tokenizer.get("normalizer"), "normalizers"):
        if member["type"] not in allowed:
            return f"normalizer {member['type']}"
        if member["type"] == "Replace" and "String" not in member["pattern"]:
            return "a normalizer with a regex"
    return ""


def _is_sentencepiece(tokenizer: Json) -> bool:
    return bool(tokenizer["model"].get("byte_fallback"))


def _members(component: Json | None, name: str) -> list[Json]:
    if component is None:
        return []
    return list(component[name]) if component["type"] == "Sequence" else [component]
