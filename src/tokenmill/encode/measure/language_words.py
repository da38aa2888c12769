"""Split texts into words to measure fertility, where a person would, not a pre-tokenizer.

uax29        what lies between two default word boundaries of Unicode (UAX #29) and holds a
             letter or a number; Thai, Lao, Khmer, Burmese and Han have a word per character
whitespace   what lies between white space
characters   every character but white space

The rules of UAX #29 are tables for a scanner, with the properties of code points of the library
`regex`. Its own search for boundaries goes through some 5 million characters a second, too few for
whole corpora, and departs from the standard in places: it joins a regional indicator with a letter,
and a mark at the start with what follows.
"""

from __future__ import annotations

import functools
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.core.records import Int32Array, UInt8Array
from tokenmill.core.suggestions import did_you_mean
from tokenmill.encode.words.characters import NUM_CODE_POINTS, WHITE_SPACE
from tokenmill.kernels.word_boundaries import (
    ACTION_BITS,
    CUT,
    CUT_BOTH,
    CUT_MIDDLE,
    JOIN,
    LETTER_STATE,
    MARK,
    RESOLVE,
    START_STATE,
    WORD,
    EncodedTexts,
    WordSpans,
    spaced_words,
    unicode_words,
)

WordRule = Literal["uax29", "whitespace", "characters"]

OTHER, START, NEWLINE, EXTEND, FORMAT, ZWJ, REGIONAL, KATAKANA, HEBREW, LETTER = range(10)
SINGLE_QUOTE, DOUBLE_QUOTE, MID_NUM_LET, MID_LETTER, MID_NUM, NUMERIC, JOINER, SPACE = range(10, 18)
NUM_CLASSES = 18
NUM_COLUMNS = 2 * NUM_CLASSES
"""A class, and NUM_CLASSES more for code points that are Extended_Pictographic."""
_CLASSES = {
    "CR": NEWLINE,
    "LF": NEWLINE,
    "Newline": NEWLINE,
    "Extend": EXTEND,
    "Format": FORMAT,
    "ZWJ": ZWJ,
    "Regional_Indicator": REGIONAL,
    "Katakana": KATAKANA,
    "Hebrew_Letter": HEBREW,
    "ALetter": LETTER,
    "Single_Quote": SINGLE_QUOTE,
    "Double_Quote": DOUBLE_QUOTE,
    "MidNumLet": MID_NUM_LET,
    "MidLetter": MID_LETTER,
    "MidNum": MID_NUM,
    "Numeric": NUMERIC,
    "ExtendNumLet": JOINER,
    "WSegSpace": SPACE,
}
_LETTERS = frozenset({HEBREW, LETTER})
_BETWEEN_LETTERS = frozenset({MID_LETTER, MID_NUM_LET, SINGLE_QUOTE})
_BETWEEN_NUMBERS = frozenset({MID_NUM, MID_NUM_LET, SINGLE_QUOTE})
_JOINED = _LETTERS | {NUMERIC, KATAKANA, JOINER}


class WordCutter:
    """Splits texts into words by one rule."""

    def __init__(self, rule: str) -> None:
        """Raise a UserError if the rule is unknown or a library is missing."""
        if rule not in get_args(WordRule):
            hint = did_you_mean(rule, get_args(WordRule))
            why = f"the rules are {', '.join(get_args(WordRule))}"
            raise UserError(f"unknown rule for words {rule!r}", why=why, hint=hint)
        self._each = rule == "characters"
        self._classes = np.zeros(0, np.uint8)
        if rule == "uax29":
            self._classes, self._transitions = code_point_classes(), transitions()
        else:
            self._spaces = np.zeros(NUM_CODE_POINTS, np.bool_)
            self._spaces[list(map(ord, WHITE_SPACE))] = True

    def cut(self, texts: EncodedTexts) -> WordSpans:
        """The words of every text."""
        if len(self._classes):
            found = unicode_words(texts.data, texts.edges, self._classes, self._transitions)
            return WordSpans(*found)
        return WordSpans(*spaced_words(texts.data, texts.edges, self._spaces, self._each))


@functools.cache
def code_point_classes() -> UInt8Array:
    """Shape (1,114,112,): the column of each code point, with WORD.

    Raises:
        UserError: the library `regex` is not installed.
    """
    try:
        import regex
    except ImportError as error:
        hint = f"{install_command('report')}, or use --words whitespace"
        raise UserError("words by UAX #29 need the package regex", hint=hint) from error
    text = "".join(map(chr, [*range(0xD800), *range(0xE000, NUM_CODE_POINTS)]))
    table = np.zeros(NUM_CODE_POINTS, np.uint8)
    for name, number in _CLASSES.items():
        table[_members(regex.findall(rf"\p{{WB={name}}}+", text))] = number
    table[_members(regex.findall(r"\p{Extended_Pictographic}+", text))] += NUM_CLASSES
    table[_members(regex.findall(r"[\p{L}\p{N}]+", text))] |= WORD
    return table


def _members(runs: list[str]) -> npt.NDArray[np.uint32]:
    return np.frombuffer("".join(runs).encode("utf-32-le"), np.uint32)


class _State(NamedTuple):
    """What the rules need to know about the text before a code point."""

    previous: int
    """The class before it; marks and the like are passed over (WB4)."""
    wanted: frozenset[int] = frozenset()
    """Classes one of which must follow; otherwise there is a boundary."""
    is_marked: bool = False
    """Whether that boundary is before the previous code point instead of here."""
    after_joiner: bool = False
    """Whether a ZWJ is right before it."""
    after_space: bool = False
    is_odd: bool = False
    """Whether an odd number of regional indicators is before it."""


@functools.cache
def transitions() -> Int32Array:
    """Shape (states, NUM_COLUMNS): the next state, shifted by ACTION_BITS, and what to do."""
    numbers = {_State(START): START_STATE, _State(LETTER): LETTER_STATE}
    found: list[list[int]] = []
    while len(found) < len(numbers):
        state = list(numbers)[len(found)]
        row = []
        for column in range(NUM_COLUMNS):
            after, action = _step(state, column % NUM_CLASSES, column >= NUM_CLASSES)
            row.append(numbers.setdefault(after, len(numbers)) << ACTION_BITS | action)
        found.append(row)
    return np.array(found, np.int32)


def _step(state: _State, kind: int, is_pictograph: bool) -> tuple[_State, int]:
    """The state after a code point, and what to do before it."""
    previous = state.previous
    if kind in (EXTEND, FORMAT, ZWJ) and previous not in (START, NEWLINE):  # WB4
        return state._replace(after_joiner=kind == ZWJ, after_space=False), JOIN
    is_pair = previous == kind == REGIONAL and state.is_odd  # WB15, WB16
    after = _State(
        kind,
        after_joiner=kind == ZWJ,
        after_space=kind == SPACE,
        is_odd=kind == REGIONAL and not is_pair,
    )
    if kind in state.wanted:
        return after, RESOLVE if state.is_marked else JOIN
    is_joined = (
        _never_parted(previous, kind)
        or is_pair
        or (state.after_joiner and is_pictograph)  # WB3c
        or (state.after_space and kind == SPACE)  # WB3d
    )
    if is_joined:
        return after, CUT_MIDDLE if state.is_marked else JOIN
    if previous == HEBREW and kind == SINGLE_QUOTE:  # WB7a, and WB7 behind it
        return after._replace(wanted=_LETTERS), JOIN
    if wanted := _wanted(previous, kind):
        return after._replace(wanted=wanted, is_marked=True), MARK
    return after, CUT_BOTH if state.is_marked else CUT


def _never_parted(left: int, right: int) -> bool:
    """WB5, WB8 to WB10, WB13 to WB13b."""
    words = _LETTERS | {NUMERIC}
    return (
        (left in words and right in words)
        or left == right == KATAKANA
        or (left in _JOINED and right == JOINER)
        or (left == JOINER and right in _JOINED)
    )


def _wanted(left: int, right: int) -> frozenset[int]:
    """The classes that must follow two classes to prevent a boundary between them."""
    if left in _LETTERS and right in _BETWEEN_LETTERS:  # WB6, WB7
        return _LETTERS
    if left == HEBREW and right == DOUBLE_QUOTE:  # WB7b, WB7c
        return frozenset({HEBREW})
    if left == NUMERIC and right in _BETWEEN_NUMBERS:  # WB11, WB12
        return frozenset({NUMERIC})
    return frozenset()
