"""Read the normalizers and pre-tokenizers of a Unigram model, if native supports them.

Steps that change one character at a time must come first, then rules for spaces.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import NamedTuple

from tokenmill.encode.tokenizer_json import Json, normalizers, pre_tokenizers
from tokenmill.encode.words.patterns import LAST_SPACE
from tokenmill.kernels.constants import AT_START, JOIN_SPACES, PREFIX, STRIP_END

COMPOSING = frozenset({"NFC", "NFKC"})
_DECOMPOSED = ("NFKD", "StripAccents", "Lowercase", "Precompiled")
"""The steps of ALBERT and XLNet, in order; all are optional."""


class Pipeline(NamedTuple):
    """The supported steps of a tokenizer."""

    by_character: list[Json]
    """Normalizers that change one character at a time."""
    rules: int
    """The rules for spaces, as bits."""
    splits_words: bool
    """Whether any white space ends a word, and each word begins with ▁."""
    strips_blanks: bool
    """Whether other white space is stripped in addition to spaces."""


def pipeline_objection(tokenizer: Json) -> str:
    """Return why native does not support the steps before the model; "" if it does."""
    found = read_pipeline(tokenizer)
    return found if isinstance(found, str) else ""


def read_pipeline(tokenizer: Json) -> Pipeline | str:
    """Return the steps before the model, or why native does not support them."""
    steps = normalizers(tokenizer)
    by_character = 0
    while by_character < len(steps) and _is_by_character(steps[by_character]):
        by_character += 1
    if _misplaced(steps[:by_character]):
        return "the order of its normalizers"
    rules = 0
    for step in steps[by_character:]:
        rule = _space_rule(step)
        one_left = "pattern" in step and rule == STRIP_END and not rules & JOIN_SPACES
        if not rule or one_left or (rules & JOIN_SPACES and _joins_as_marks(steps)):
            return f"normalizer {step['type']}"
        rules |= rule
    before = pre_tokenizers(tokenizer)
    splits_words = [step["type"] for step in before] == ["WhitespaceSplit", "Metaspace"]
    if not before or before[-1]["type"] != "Metaspace" or len(before) > 1 + splits_words:
        return "a pre-tokenizer other than Metaspace"
    scheme = before[-1].get("prepend_scheme", "always")
    if splits_words:
        if scheme != "always" or _joins_as_marks(steps):
            return "WhitespaceSplit with an unsupported Metaspace or normalizer"
        rules |= JOIN_SPACES | STRIP_END
    strips_blanks = any(step["type"] == "Strip" for step in steps)
    rules |= PREFIX * (scheme != "never") | AT_START * (scheme == "first")
    return Pipeline(steps[:by_character], rules, splits_words, strips_blanks)


def _is_by_character(step: Json) -> bool:
    if step["type"] == "Replace":
        pattern = step["pattern"].get("String", "")
        return (len(pattern) == 1 and pattern not in " ▁") or replaces_pair(step)
    return step["type"] in {"Nmt", *_DECOMPOSED, *COMPOSING}


def replaces_pair(step: Json) -> bool:
    """Whether a normalizer replaces two ASCII characters, like ALBERT's quotes."""
    pattern = step["pattern"].get("String", "") if step["type"] == "Replace" else ""
    return len(pattern) == 2 and pattern.isascii() and " " not in pattern


def _misplaced(steps: list[Json]) -> bool:
    """Whether a step may see what an earlier one makes of several characters."""
    later = [*dropwhile(replaces_pair, steps)]
    kinds = [step["type"] for step in later]
    if kinds == [kind for kind in _DECOMPOSED if kind in kinds]:
        return "NFKD" in kinds and "StripAccents" not in kinds
    return (
        any(map(replaces_pair, later))
        or not {"NFKD", "StripAccents"}.isdisjoint(kinds)
        or "Precompiled" in kinds[1:]
        or not COMPOSING.isdisjoint(kinds[:-1])
    )


def _space_rule(step: Json) -> int:
    """Return the rule of a step for spaces; 0 if it is not supported."""
    if step["type"] == "Strip":
        return STRIP_END if step.get("strip_right") and not step.get("strip_left", True) else 0
    if step["type"] != "Replace":
        return 0
    pattern, content = step["pattern"], step["content"]
    if pattern.get("Regex") == " {2,}" and content in {" ", "▁"}:
        return JOIN_SPACES
    return STRIP_END if pattern.get("Regex") == LAST_SPACE and content == "" else 0


def _joins_as_marks(steps: list[Json]) -> bool:
    return any(step["type"] == "Replace" and step["content"] == "▁" for step in steps)
