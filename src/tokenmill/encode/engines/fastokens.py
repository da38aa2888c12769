"""fastokens, the fastest engine for byte-level BPE, and which tokenizers it may encode.

Its memory is bounded. It silently loads tokenizers that it does not encode exactly. So there is an
allow-list of features that it was found to encode exactly, on every Unicode code point
(`bench/code_points.py`) and by fuzzing. Tokenizers with any other feature go to the next engine.
Calibration and audits still check the ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenmill.core.installed import installed_version
from tokenmill.core.records import TokenBatch
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.tokenizer_json import Json, loaded_ids
from tokenmill.encode.words.patterns import (
    DEEPSEEK3_SPLITS,
    LLAMA3_SPLIT,
    O200K_SPLIT,
    QWEN2_SPLIT,
    QWEN3_5_SPLIT,
    TEKKEN_SPLIT,
)

_NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
EXACT_SPLITS: set[tuple[str, ...]] = {
    *((split,) for split in (LLAMA3_SPLIT, QWEN2_SPLIT, O200K_SPLIT, TEKKEN_SPLIT, QWEN3_5_SPLIT)),
    DEEPSEEK3_SPLITS,
}
"""The patterns of consecutive `Split` steps that fastokens was tested with."""


class FastokensEngine:
    """Encodes with `fastokens`, through its flat call, which creates no Python object per token."""

    name = "fastokens"

    def __init__(self, tokenizer_json: bytes, control_tokens: bool) -> None:
        from fastokens._native import Tokenizer

        self.version = installed_version("fastokens")
        self._tokenizer = Tokenizer.from_json_str(tokenizer_json.decode())
        self._tokenizer.no_truncation()
        self._split_special_tokens = not control_tokens

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        ids, offsets = self._tokenizer.encode_batch_flat(
            list(texts), split_special_tokens=self._split_special_tokens
        )
        return TokenBatch(
            np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)
        )


def fastokens_objection(tokenizer: Json) -> str:
    """Return why fastokens cannot encode this tokenizer exactly; "" if it can."""
    return (
        _model_objection(tokenizer)
        or _hidden_objection(tokenizer)
        or _byte_level_objection(tokenizer)
        or _normalizer_objection(tokenizer, is_sentencepiece(tokenizer))
        or _spelling_objection(tokenizer)
    )


def split_patterns(tokenizer: Json) -> tuple[str, ...]:
    """Return the regexes of the pre-tokenizer's Split steps, in order."""
    members = _members(tokenizer.get("pre_tokenizer"), "pretokenizers")
    return tuple(
        member["pattern"].get("Regex", "") for member in members if member["type"] == "Split"
    )


def _model_objection(tokenizer: Json) -> str:
    model = tokenizer["model"]
    if model.get("type") != "BPE" or "merges" not in model:
        return f"model {model.get('type')}"
    added = tokenizer.get("added_tokens") or []
    merges = model["merges"]
    if {*map(type, merges)} == {list}:
        merges = [*map(tuple, merges)]  # faster than checking each
    else:
        merges = [tuple(m) if isinstance(m, list) else m for m in merges]
    checks = {
        "dropout": bool(model.get("dropout")),
        "a subword prefix": bool(model.get("continuing_subword_prefix")),
        "a word suffix": bool(model.get("end_of_word_suffix")),
        "duplicate merges": len(set(merges)) != len(merges),
        "a single_word added token": any(token.get("single_word") for token in added),
        "an added token of white space that strips white space": any(
            token["content"].isspace() and (token.get("lstrip") or token.get("rstrip"))
            for token in added
        ),
        "a non-ASCII added token together with a normalizer": bool(
            _members(tokenizer.get("normalizer"), "normalizers")
        )
        and not all(token["content"].isascii() for token in added),
        "an added token with an id that the library ignores": loaded_ids(model["vocab"], added)
        != [token["id"] for token in added],
        "bytes that are missing from the vocabulary": not model["vocab"].keys()
        >= needed_bytes(is_sentencepiece(tokenizer)),
    }
    return next((name for name, found in checks.items() if found), "")


def overlapping_tokens(added: list[Json]) -> list[str]:
    """Return the raw added tokens that can overlap with a normalized one in a text.

    The reference matches the raw ones first, with the spaces that they strip, but fastokens
    matches the leftmost one.
    """
    normalized = [t["content"] for t in added if t["content"] and t.get("normalized")]
    starts = {token[:stop] for token in normalized for stop in range(1, len(token) + 1)}
    ends = {token[start:] for token in normalized for start in range(len(token))}
    beside_spaces = any(map(str.isspace, starts | ends))
    joined = "\0".join(normalized)

    def overlaps(token: str) -> bool:
        places = range(1, len(token) + 1)
        return (
            token in joined
            or any(other in token for other in normalized)
            or not starts.isdisjoint(token[-size:] for size in places)
            or not ends.isdisjoint(token[:size] for size in places)
        )

    raw = [token for token in added if token["content"] and not token.get("normalized")]
    return [
        token["content"]
        for token in raw
        if (beside_spaces and (token.get("lstrip") or token.get("rstrip")))
        or overlaps(token["content"])
    ]


def _hidden_objection(tokenizer: Json) -> str:
    """Return why fastokens cannot encode even texts without the overlapping tokens."""
    added = tokenizer.get("added_tokens") or []
    both = any(token.get("special") and token.get("normalized") for token in added)
    return "added tokens that overlap" if both and overlapping_tokens(added) else ""


def needed_bytes(sentencepiece: bool) -> set[str]:
    """Return the tokens of all bytes; for byte level, without bytes that never occur in UTF-8."""
    if sentencepiece:
        return {f"<0x{byte:02X}>" for byte in range(256)}
    return {symbol for byte, symbol in enumerate(byte_symbols()) if byte not in _NEVER_IN_UTF8}


def _byte_level_objection(tokenizer: Json) -> str:
    if is_sentencepiece(tokenizer):
        return "" if tokenizer.get("pre_tokenizer") is None else "a pre-tokenizer"
    members = _members(tokenizer.get("pre_tokenizer"), "pretokenizers")
    kinds = [member["type"] for member in members]
    if kinds == ["ByteLevel"]:
        return "" if members[0].get("use_regex", True) else "ByteLevel without its regex"
    *splits, byte_level = members or [{}]
    if not splits or kinds != ["Split"] * len(splits) + ["ByteLevel"]:
        return f"pre-tokenizer {' + '.join(kinds) or 'none'}"
    for split in splits:
        removed = len(splits) == 1 and split.get("behavior") == "Removed" and split.get("invert")
        isolated = split.get("behavior") == "Isolated" and not split.get("invert")
        if not (isolated or removed):
            return f"split behaviour {split.get('behavior')}"
    if split_patterns(tokenizer) not in EXACT_SPLITS:
        return "a split pattern that it was not tested with"
    plain = not byte_level.get("use_regex", True) and not byte_level.get("add_prefix_space", True)
    return "" if plain else "ByteLevel with a second split or a prefix space"


def _normalizer_objection(tokenizer: Json, sentencepiece: bool) -> str:
    allowed = {"Prepend", "Replace"} if sentencepiece else {"NFC"}
    for member in _members(tokenizer.get("normalizer"), "normalizers"):
        if member["type"] not in allowed:
            return f"normalizer {member['type']}"
        if member["type"] == "Replace" and "String" not in member["pattern"]:
            return "a normalizer with a regex"
    return ""


def _spelling_objection(tokenizer: Json) -> str:
    # For tokens with a character outside the vocabulary, fastokens ignores the merges.
    vocab = tokenizer["model"]["vocab"]
    spelled = not is_sentencepiece(tokenizer) or vocab.keys() >= set("".join(vocab))
    return "" if spelled else "a token with a character outside the vocabulary"


def is_sentencepiece(tokenizer: Json) -> bool:
    """Whether a model falls back to bytes for unknown characters."""
    return bool(tokenizer["model"].get("byte_fallback"))


def _members(component: Json | None, name: str) -> list[Json]:
    if component is None:
        return []
    return list(component[name]) if component["type"] == "Sequence" else [component]


def fastokens_routes(tokenizer: dict[str, Any]) -> list[str]:
    """Return the strings in documents that fastokens may get wrong.

    It knows the contractions 's and 'S, but not the long s, which is equal to them under case
    folding. It matches added tokens in one pass, the reference in two.
    """
    contractions = any("(?i:'s" in pattern for pattern in split_patterns(tokenizer))
    tokens = overlapping_tokens(tokenizer.get("added_tokens") or [])
    return [*tokens, "'\u017f"] if contractions else tokens
