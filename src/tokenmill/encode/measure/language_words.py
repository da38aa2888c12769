"""Split texts into words to measure fertility, where a person would, not a pre-tokenizer.

uax29        what lies between two default word boundaries of Unicode (UAX #29) and holds a
             letter or a number; Thai, Lao, Khmer, Burmese and Han have a word per character
whitespace   what lies between white space
characters   every character but white space
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.core.suggestions import did_you_mean
from tokenmill.encode.measure import word_rules as rules
from tokenmill.encode.measure.word_rules import UInt8Array
from tokenmill.kernels.compiled import compiled, inlined, inner

WordRule = Literal["uax29", "whitespace", "characters"]
_WHITE_SPACE = [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029]
_WHITE_SPACE += [0x202F, 0x205F, 0x3000]
"""The property White_Space."""


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Texts in UTF-8, one after another."""

    data: UInt8Array
    edges: Int64Array
    """Shape (n + 1,): text i is `data[edges[i]:edges[i + 1]]`."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> EncodedTexts:
        """The bytes of some texts."""
        encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), edges)


@dataclass(frozen=True, slots=True)
class WordSpans:
    """The positions of words in texts."""

    spans: Int64Array
    """Shape (num_words, 2): first byte and one past the last, in the data of all texts."""
    edges: Int64Array
    """Shape (n + 1,): the words of text i are `spans[edges[i]:edges[i + 1]]`."""


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
            self._classes, self._transitions = rules.code_point_classes(), rules.transitions()
        else:
            self._spaces = np.zeros(rules.NUM_CODE_POINTS, np.bool_)
            self._spaces[_WHITE_SPACE] = True

    def cut(self, texts: EncodedTexts) -> WordSpans:
        """The words of every text."""
        if len(self._classes):
            found = _unicode_words(texts.data, texts.edges, self._classes, self._transitions)
            return WordSpans(*found)
        return WordSpans(*_spaced_words(texts.data, texts.edges, self._spaces, self._each))


@inlined
def _code_point(data: UInt8Array, at: int, stop: int) -> tuple[int, int]:
    """The code point that begins at a byte, and its length in bytes; broken UTF-8 is one byte.

    Past the last byte it is a line feed.
    """
    if at >= stop:
        return 0x0A, 1
    first = int(data[at])
    if first < 0x80:
        return first, 1
    if first < 0xE0 and at + 1 < stop:
        return ((first & 0x1F) << 6) | (data[at + 1] & 0x3F), 2
    if first < 0xF0 and at + 2 < stop:
        return ((first & 0x0F) << 12) | ((data[at + 1] & 0x3F) << 6) | (data[at + 2] & 0x3F), 3
    if first < 0xF5 and at + 3 < stop:
        high = ((first & 0x07) << 18) | ((data[at + 1] & 0x3F) << 12)
        return min(high | ((data[at + 2] & 0x3F) << 6) | (data[at + 3] & 0x3F), 0x10FFFF), 4
    return 0xFFFD, 1


@inner
def _doubled(spans: Int64Array) -> Int64Array:
    larger = np.empty((2 * len(spans), 2), np.int64)
    for i in range(len(spans)):
        larger[i, 0], larger[i, 1] = spans[i, 0], spans[i, 1]
    return larger


@compiled
def _spaced_words(
    data: UInt8Array, edges: Int64Array, spaces: npt.NDArray[np.bool_], each: bool
) -> tuple[Int64Array, Int64Array]:
    """Find runs of non-space characters, or single non-space characters; see WordSpans."""
    spans = np.empty((len(data) // 4 + 16, 2), np.int64)
    counts = np.zeros(len(edges), np.int64)
    count = 0
    for text in range(len(edges) - 1):
        at, stop = edges[text], edges[text + 1]
        start = -1
        while at < stop:
            code, size = _code_point(data, at, stop)
            if start >= 0 and (each or spaces[code]):
                if count == len(spans):
                    spans = _doubled(spans)
                spans[count, 0], spans[count, 1] = start, at
                count += 1
                start = -1
            if start < 0 and not spaces[code]:
                start = at
            at += size
        if start >= 0:
            if count == len(spans):
                spans = _doubled(spans)
            spans[count, 0], spans[count, 1] = start, stop
            count += 1
        counts[text + 1] = count
    return spans[:count].copy(), counts


@compiled
def _unicode_words(
    data: UInt8Array, edges: Int64Array, classes: UInt8Array, transitions: Int32Array
) -> tuple[Int64Array, Int64Array]:
    """Find the spans between boundaries that hold a letter or a number; see WordSpans."""
    spans = np.empty((len(data) // 4 + 16, 2), np.int64)
    counts = np.zeros(len(edges), np.int64)
    for text in range(len(edges) - 1):
        counts[text + 1], spans = _words_of(
            data, edges[text], edges[text + 1], classes, transitions, spans, counts[text]
        )
    return spans[: counts[-1]].copy(), counts


@inner
def _after_letters(data: UInt8Array, at: int, stop: int, classes: UInt8Array) -> int:
    """The end of the following letters of one or two bytes."""
    letter = classes[0x61]
    while at < stop:
        first = int(data[at])
        if first < 0x80:
            if classes[first] != letter:
                break
            at += 1
        elif first < 0xE0 and at + 1 < stop:
            if classes[(first & 0x1F) << 6 | data[at + 1] & 0x3F] != letter:
                break
            at += 2
        else:
            break
    return at


@inner
def _words_of(
    data: UInt8Array,
    at: int,
    stop: int,
    classes: UInt8Array,
    transitions: Int32Array,
    spans: Int64Array,
    count: int,
) -> tuple[int, Int64Array]:
    """Append the words of one text; returns how many there are now, and the array.

    `middle` is the mark of `word_rules`, or -1; then `before` says whether there is a letter or a
    number before it. The end of a text cuts like the end of a line.
    """
    start, middle = at, -1
    state = rules.START_STATE
    holds = before = False
    while at <= stop:
        code, size = _code_point(data, at, stop)
        entry = classes[code]
        cell = transitions[state, entry & rules.COLUMN_BITS]
        state, action = cell >> rules.ACTION_BITS, cell & 7
        if action >= rules.CUT:
            if count + 2 > len(spans):
                spans = _doubled(spans)
            if action != rules.CUT:
                spans[count, 0], spans[count, 1] = start, middle
                count += before
                start, middle = middle, -1
            if action != rules.CUT_MIDDLE:
                spans[count, 0], spans[count, 1] = start, at
                count += holds
                start, holds = at, False
        elif action == rules.MARK:
            before, holds, middle = holds, False, at
        elif action == rules.RESOLVE:
            holds, middle = holds or before, -1
        holds = holds or (entry & rules.WORD) != 0
        at += size
        if state == rules.LETTER_STATE:  # most of all text
            after = _after_letters(data, at, stop, classes)
            holds = holds or after > at
            at = after
    return count, spans
