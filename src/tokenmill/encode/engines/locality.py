"""Decide whether the texts of a tokenizer can be cut before spaces without changing their ids.

A cut lies between a character that stays visible after normalization and a space. It is safe if
every step of the tokenizer is *local* there:

    added tokens     none can span the cut or depend on the text after it
    normalizer       no step looks across the cut, so one side ends visibly, and the other begins
                     with a space (or a ▁ that was one)
    pre-tokenizer    one step always splits there, and the steps before it are local; the steps
                     after it see one side at a time
    model            encodes one piece at a time, so it never sees both sides

Only components known to have these properties are admitted.
"""

from __future__ import annotations

import base64
import struct

import numpy as np

from tokenmill.encode.tokenizer_json import (
    Json,
    matched_contents,
    matched_tokens,
    normalizers,
    pre_tokenizers,
)
from tokenmill.encode.words.patterns import DIGIT_GROUPS, JOINED_SPACES, LAST_SPACE

JOINING = (
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e"
    "\U000110bd\U000110cd\U000111c2\U000111c3\U000113d1\U0001193f\U00011941\U00011a3a\U00011a84"
    "\U00011a85\U00011a86\U00011a87\U00011a88\U00011a89\U00011d46\U00011f02"
)
"""Characters that form a grapheme with whatever follows, even a space (GCB=Prepend)."""
_CHARACTER_WISE = {"Lowercase", "Nmt", "StripAccents", "BertNormalizer"}
_CANONICAL = {"NFC", "NFD", "NFKC", "NFKD"}
"""Normalizers that look only at combining marks after a character, which are never ASCII."""
_ALTERNATIVES = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    *(r"'s", r"'t", r"'re", r"'ve", r"'m", r"'ll", r"'d"),
    *(r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+"),
    *(r"[\p{L}]+", r"[\p{N}]", r"[^\s\p{L}\p{N}]+", r"<\|startoftext\|>", r"<\|endoftext\|>"),
    *(r"\p{N}", r"\p{N}+", r"\p{N}{1,3}", DIGIT_GROUPS, "[一-龥\u3040-ゟ゠-ヿ]+"),
    *(r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+",
    *(r" ?[^\s\p{L}\p{N}]+[\r\n]*", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r" ?[\p{P}\p{S}]+[\r\n]*"),
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    *(r"\s*[\r\n]", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"),
}
"""The alternatives of published split patterns. None of their matches continues over a space after
another character, from a letter to another kind of character, from a digit to anything but a
letter, or from another kind to a digit. (An apostrophe or a bar may join the word before it.)"""
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
for _word in (f"{_UPPER}*{_LOWER}+", f"{_UPPER}+{_LOWER}*"):
    _word = r"[^\r\n\p{L}\p{N}]?" + _word
    _ALTERNATIVES |= {_word, _word + r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"}

LABEL, FAR = 0x800000FF, 0x200
"""Bit masks of a unit: its label, and the flag for a large offset."""


def locality_objection(tokenizer: Json, control_tokens: bool) -> str:
    """Return why the texts of a tokenizer cannot be cut; "" if they can."""
    metaspace = any(map(_is_metaspace, pre_tokenizers(tokenizer)))
    objections = [_normalizer_objection(step, metaspace) for step in normalizers(tokenizer)]
    objections.append(_pre_tokenizer_objection(tokenizer))
    objections += map(_flags_objection, matched_tokens(tokenizer, control_tokens))
    if not any(objections):  # otherwise, the normalizer might not load
        objections += map(_content_objection, matched_contents(tokenizer, control_tokens))
    return next(filter(None, objections), "")


def splitting_steps(tokenizer: Json) -> list[Json]:
    """Return the steps of the pre-tokenizer up to the one that splits before every space.

    Returns [] if there is no such step, or if a step before it is not local.
    """
    steps = pre_tokenizers(tokenizer)
    marked = any(step.get("content") == "▁" for step in normalizers(tokenizer))
    marked |= any(map(_looks_at_place, steps))
    for count, step in enumerate(steps, 1):
        if _is_metaspace(step) or (not marked and _separates(step)):
            return steps[:count]
        spaces_only = marked and step["type"] == "WhitespaceSplit"  # a ▁ is not white space
        local = step["type"] in {"Digits", "Punctuation"} or (not marked and _is_local_split(step))
        if not (local or spaces_only):
            return []
    return []


def alternatives(pattern: str) -> list[str]:
    """Return the alternatives of a regex; bars in brackets or parentheses do not count."""
    parts, depth, escaped, in_class = [""], 0, False, False
    for character in pattern:
        if character == "|" and not (depth or escaped or in_class):
            parts.append("")
            continue
        parts[-1] += character
        if not escaped:
            in_class = (in_class or character == "[") and character != "]"
            depth += (not in_class) * ((character == "(") - (character == ")"))
        escaped = character == "\\" and not escaped
    return parts


def _flags_objection(token: Json) -> str:
    # `lstrip` is local, because there is never a cut between white space and an added token.
    beside = token.get("rstrip") or token.get("single_word")
    return "an added token with rstrip or single_word" if beside else ""


def _content_objection(content: str) -> str:
    if not content:
        return "an added token that the normalizer removes"
    spaces = any(c.isspace() or c == "▁" for c in content)
    return "an added token with a space" if spaces else ""


def _pre_tokenizer_objection(tokenizer: Json) -> str:
    steps = splitting_steps(tokenizer)
    if not steps:
        return "no pre-tokenizer that always splits at spaces"
    later = pre_tokenizers(tokenizer)[len(steps) :]
    return "Metaspace with prepend_scheme first" if any(map(_looks_at_place, later)) else ""


def _is_metaspace(step: Json) -> bool:
    """Whether a pre-tokenizer turns spaces into ▁ and splits before each."""
    plain = step["type"] == "Metaspace" and step.get("replacement") == "▁"
    return plain and bool(step.get("split", True))


def _looks_at_place(step: Json) -> bool:
    """Whether a pre-tokenizer adds a ▁ only at the start of a text."""
    return step["type"] == "Metaspace" and step.get("prepend_scheme") == "first"


def _separates(step: Json) -> bool:
    """Whether a pre-tokenizer splits before every space that follows another character."""
    if step["type"] == "ByteLevel":
        return bool(step.get("use_regex", True))
    if _is_local_split(step):
        return bool(step.get("invert")) or r"\s+" in _alternatives_of(step)
    return step["type"] in {"BertPreTokenizer", "Whitespace", "WhitespaceSplit"}


def _is_local_split(step: Json) -> bool:
    """Whether a pre-tokenizer is a Split with only known alternatives."""
    if step["type"] != "Split" or "Regex" not in step["pattern"]:
        return False
    removed = step.get("behavior") == "Removed" and step.get("invert")
    isolated = step.get("behavior") == "Isolated" and not step.get("invert")
    return (removed or isolated) and _alternatives_of(step) <= _ALTERNATIVES


def _alternatives_of(split: Json) -> set[str]:
    # Some patterns contain newline characters, others the escapes \r and \n.
    return set(alternatives(split["pattern"]["Regex"].replace("\r", r"\r").replace("\n", r"\n")))


def _normalizer_objection(step: Json, metaspace: bool) -> str:
    kind = step["type"]
    if kind == "Replace":
        return _replace_objection(step["pattern"], step["content"], metaspace)
    if kind == "Precompiled":
        changed = any(begin_keys(step["precompiled_charsmap"], [*" ", *JOINING]))
        return "a normalizer with a table that replaces spaces" if changed else ""
    strips_ends_of_lines = kind == "Strip" and not step.get("strip_left", True)
    local = kind in _CHARACTER_WISE | _CANONICAL or strips_ends_of_lines
    return "" if local else f"normalizer {kind}"


def _replace_objection(pattern: Json, content: str, metaspace: bool) -> str:
    if pattern.get("String") == "":
        return "a normalizer that replaces the empty string"
    becomes_space = content == " " or (content == "▁" and metaspace)
    if pattern.get("Regex") in JOINED_SPACES or pattern.get("String") == " ":
        return "" if becomes_space else "a normalizer that replaces spaces"
    if "String" not in pattern:
        is_local = pattern.get("Regex") == LAST_SPACE and content == ""
        return "" if is_local else "a normalizer with a regex"
    spaces = any(c.isspace() or c == "▁" for c in pattern["String"])
    visible = content.isascii() and content.isprintable() and content and " " not in content
    return "" if visible and not spaces else "a normalizer that replaces or adds spaces"


def begin_keys(charsmap: str, characters: list[str]) -> list[bool]:
    """Return for each character whether a key of a `precompiled_charsmap` begins with it.

    That is SentencePiece's table of replacements, in base64. It begins with the size of a
    double-array trie in bytes (uint32, little-endian). The trie's units (uint32) follow, then
    zero-terminated texts. A unit holds the byte that leads to it and the offset of its children
    (darts-clone, `darts.h`: `DoubleArrayUnit`).

    Raises:
        ValueError: the table is damaged.
    """
    table = base64.b64decode(charsmap)
    if len(table) < 8 or not 4 <= (size := struct.unpack_from("<I", table)[0]) <= len(table) - 4:
        raise ValueError("the precompiled_charsmap is truncated")
    trie = np.frombuffer(table, "<u4", size // 4, 4).astype(np.int64)
    spelled = [character.encode() for character in characters]
    lengths = np.array([len(key) for key in spelled])
    nodes, found = np.zeros(len(spelled), np.int64), np.ones(len(spelled), np.bool_)
    padded = np.frombuffer(b"".join(key.ljust(4, b"\0") for key in spelled), np.uint8)
    for depth, labels in enumerate(padded.reshape(-1, 4).T.astype(np.int64)):
        units = trie[nodes]
        children = nodes ^ (units >> 10 << ((units & FAR) >> 6)) ^ labels
        inside = children < len(trie)
        children = np.where(inside, children, 0)
        is_child = inside & (trie[children] & LABEL == labels)
        still = depth < lengths
        found &= is_child | ~still
        nodes = np.where(still, children, nodes)
    return found.tolist()
