r"""Splits that cut numbers differently from how they were published.

    single          1234567 -> 1 2 3 4 5 6 7      Llama 2, Qwen, StarCoder
    groups-right    1234567 -> 1 234 567          Singh & Strouse 2024 (arXiv 2402.14903)

Llama 3's own `\p{N}{1,3}` groups from the left: 123 456 7. To group from the right, a regex needs a
lookahead to the end of the number, so n digits take n^2 steps: 10,000 digits take 0.07 s, and
50,000 take 1.7 s. Compiled scanners need one pass.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from tokenmill.core.errors import UserError
from tokenmill.encode.words.patterns import DIGIT_GROUPS
from tokenmill.encode.words.splits import Json, Split, steps_of

Digits = Literal["keep", "single", "groups-right"]

_PATTERNS = {"single": r"\p{N}", "groups-right": DIGIT_GROUPS}
_DIGITS_ALONE = re.compile(rf"(^|\|)(?:{re.escape(DIGIT_GROUPS)}|\\p\{{N\}}(?:\{{1,3\}})?)(?=\||$)")
"""The alternative of a pattern that matches only digits."""


def with_digits(split: Split, digits: Digits) -> Split:
    """Return an unnamed copy of a split that cuts numbers in another way.

    If a pattern of the split has an alternative for numbers, that is replaced. Otherwise a step is
    added.

    Raises:
        UserError: the split already cuts into single digits, which cannot be grouped later.
    """
    if digits == "keep":
        return split
    steps = list(steps_of(split.pre_tokenizer, "pretokenizers"))
    if digits != "single" and any(step["type"] == "Digits" for step in steps):
        raise UserError(
            f"cannot group the digits of the split {split.name!r}",
            why="one of its steps makes each digit a word",
            hint="choose another --split, or --digits keep",
        )
    found = [_replaced(step, _PATTERNS[digits]) for step in steps]
    if found == steps and not any(map(_cuts_digits, steps)):
        # Before the byte-level step, but after the step that marks spaces.
        place = 0 if split.byte_level else len(steps)
        found.insert(place, _digits_step(digits))
    if found == steps:
        return split
    sequence = {"type": "Sequence", "pretokenizers": found}
    return dataclasses.replace(split, name="", pre_tokenizer=sequence)


def _digits_step(digits: Digits) -> Json:
    if digits == "single":
        return {"type": "Digits", "individual_digits": True}
    pattern = {"Regex": DIGIT_GROUPS}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def _cuts_digits(step: Json) -> bool:
    return step["type"] == "Digits" or _replaced(step, "") != step


def _replaced(step: Json, pattern: str) -> Json:
    """Replace the alternative for digits in the pattern of a step, if it has one."""
    regex = step["pattern"].get("Regex", "") if step["type"] == "Split" else ""
    if not _DIGITS_ALONE.search(regex):
        return step
    made = _DIGITS_ALONE.sub(lambda found: found[1] + pattern, regex)
    return {**step, "pattern": {"Regex": made}}
