"""Find steps of a tokenizer that may take endless time or memory.

The time and memory of known steps grow linearly with the text. An unknown regular expression may
backtrack forever, and replacements may make a text a thousand times longer.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from tokenmill.encode.encodings import EXPLICIT, encoding_of
from tokenmill.encode.engines.chunks.locality import (
    normalizers,
    pre_tokenizers,
    with_library,
)
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.patterns import KNOWN_PATTERNS

Json = dict[str, Any]
Step = tuple[str, Callable[[str], object]]

MAX_GROWTH = 64
"""How many characters harmless steps may make of one. Byte level makes up to 4, NFKC 18."""
MAX_WORD_CHARACTERS = 1_000
"""The time of WordPiece grows with the square of the word length; published models allow 200."""

_KNOWN_RANK_PATTERNS = KNOWN_PATTERNS.union(known.pattern for known in ENCODINGS.values())


class _Model(msgspec.Struct):
    max_input_chars_per_word: int = 0


class _Steps(msgspec.Struct):
    """The parts to look at; decoding skips the vocabulary."""

    model: _Model
    normalizer: Json | None = None
    pre_tokenizer: Json | None = None
    added_tokens: list[Json] | None = None


def steps_before_model(file: TokenizerFile) -> list[Step]:
    """Return the normalizer and the pre-tokenizer of a tokenizer.json, as named functions."""
    if not KINDS[file.kind].is_json:
        return []
    tokenizer = _read(file)
    library = with_library(tokenizer, pre_tokenizers(tokenizer))
    found: list[Step] = []
    if library.normalizer is not None:
        found.append(("normalizer", library.normalizer.normalize_str))
    if library.pre_tokenizer is not None:
        found.append(("pre-tokenizer", library.pre_tokenizer.pre_tokenize_str))
    return found


def unknown_step(file: TokenizerFile) -> str:
    """Return what may take a tokenizer endless time or memory; "" if all its steps are known.

    Such steps come from a tokenizer.json, or from the pattern that a user gives for a rank file.
    """
    if file.encoding == EXPLICIT and encoding_of(file).pattern not in _KNOWN_RANK_PATTERNS:
        return "an unknown regular expression"
    if not KINDS[file.kind].is_json:
        return ""
    try:
        tokenizer = _read(file)
        growth = 1.0
        for step in normalizers(tokenizer) + pre_tokenizers(tokenizer):
            pattern = step.get("pattern") or {}
            if pattern.get("Regex", "") not in KNOWN_PATTERNS | {""}:
                return f"an unknown regular expression in {step['type']}"
            growth *= max(_growth(step), 1.0)
        if growth > MAX_GROWTH:
            return "steps that can make texts much longer"
        if tokenizer["model"]["max_input_chars_per_word"] > MAX_WORD_CHARACTERS:
            return "a WordPiece model without a limit on word length"
        if _removes_added_token(tokenizer):  # runs the normalizer, whose steps are known by now
            return "an added token that its normalizer removes"
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # a Rust panic is not an Exception
        return "a step that cannot be read"
    return ""


def _read(file: TokenizerFile) -> Json:
    tokenizer: Json = msgspec.to_builtins(msgspec.json.decode(file.data, type=_Steps))
    return tokenizer


def _removes_added_token(tokenizer: Json) -> bool:
    """Whether an added token normalizes to "", which `tokenizers` would match endlessly."""
    added = tokenizer["added_tokens"] or []
    contents = [token["content"] for token in added if token.get("normalized")]
    if not contents or tokenizer["normalizer"] is None:
        return "" in contents
    normalizer = with_library(tokenizer, []).normalizer
    return any(not normalizer.normalize_str(content) for content in contents)


def _growth(step: Json) -> float:
    """Return how many characters a step can make of one."""
    match step["type"]:
        case "ByteLevel":
            return 4
        case "Prepend":
            return len(step["prepend"])
        case "Replace":
            return len(step["content"]) / max(len(step["pattern"].get("String", "")), 1)
        case "Precompiled":
            # The table holds the size of a trie, the trie, and zero-terminated strings.
            table = base64.b64decode(step["precompiled_charsmap"] or "")
            strings = table[4 + int.from_bytes(table[:4], "little") :]
            return max(map(len, strings.split(b"\0"))) / 4
    return 1
