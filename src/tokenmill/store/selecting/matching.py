"""What is looked for in the text of documents: a string, a regular expression, or many strings.

Each matcher returns the occurrences in a block of text. They never cross from one document into the
next, and those of one string do not overlap.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np

from tokenmill.core.errors import EngineError, UserError
from tokenmill.core.records import Int64Array
from tokenmill.core.values import counted, shortened
from tokenmill.kernels.double_array import double_array
from tokenmill.kernels.interpreted import for_steps
from tokenmill.kernels.strings import ManyStrings, find_strings
from tokenmill.store.selecting.lines import read_lines
from tokenmill.store.selecting.texts import TextBlock

Occurrences = Int64Array
"""Shape (n, 3): where each begins and ends in the data of a block, and the number of its string."""
LONGEST_NAME = 60


class Matcher(Protocol):
    """Finds occurrences in one block after another."""

    @property
    def strings(self) -> Sequence[str]:
        """What is counted, each by itself."""

    @property
    def question(self) -> str:
        """What is looked for, in words."""

    def occurrences(self, block: TextBlock) -> Occurrences:
        """Return those in a block, in the order of their beginnings."""


def matcher_of(strings: Sequence[str], *, regex: bool = False) -> Matcher:
    """Return what finds one string, any of several, or the matches of one regular expression.

    Raises:
        UserError: there is no string, one is empty, or the expression is wrong.
    """
    strings = list(dict.fromkeys(strings))
    if not strings or not all(strings):
        what = "there is nothing to find" if not strings else "a string to find is empty"
        raise UserError(what, hint="give at least one character")
    if regex and len(strings) > 1:
        why = "--regex takes one expression"
        raise UserError("several regular expressions", why=why, hint="join them with |")
    if regex:
        return _Regex(strings[0])
    return _String(strings[0]) if len(strings) == 1 else _Strings(strings)


def strings_of(file: str | Path) -> list[str]:
    """Return the lines of a file; empty ones are left out.

    Raises:
        UserError: it cannot be read, or is not UTF-8.
    """
    lines = (line for _, lines in read_lines(file, "a file of strings") for line in lines)
    return [line.decode() for line in lines if line]


class _String:
    def __init__(self, string: str) -> None:
        self.strings = [string]
        self.question = f'containing "{shortened(string, LONGEST_NAME)}"'
        self._needle = _utf8(string)

    def occurrences(self, block: TextBlock) -> Occurrences:
        data, offsets, size = block.data.tobytes(), block.offsets.tolist(), len(self._needle)
        found, document = [], 0
        place = data.find(self._needle)
        while place >= 0:
            document = bisect_right(offsets, place, document) - 1
            following = offsets[document + 1]
            if place + size <= following:
                found.append(place)
                following = place + size
            place = data.find(self._needle, following)
        starts = np.array(found, np.int64)
        return np.stack([starts, starts + size, np.zeros_like(starts)], axis=1)


class _Regex:
    def __init__(self, pattern: str) -> None:
        self.strings = [pattern]
        self.question = f'matching "{shortened(pattern, LONGEST_NAME)}"'
        what = f"wrong regular expression {shortened(pattern, LONGEST_NAME)}"
        try:
            self._pattern = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            hint = "for a plain string, leave out --regex"
            raise UserError(what, why=str(error), hint=hint) from error
        if self._pattern.search("") is not None:
            raise UserError(what, why="it matches the empty text, so every document")

    def occurrences(self, block: TextBlock) -> Occurrences:
        data, found = block.data.tobytes(), []
        for start, stop in pairwise(block.offsets.tolist()):
            text = data[start:stop].decode(errors="surrogateescape")
            place, before = start, 0
            for match in self._pattern.finditer(text):
                if match.end() > match.start():
                    place += _size(text[before : match.start()])
                    end = place + _size(match[0])
                    found.append((place, end, 0))
                    place, before = end, match.end()
        return np.array(found, np.int64).reshape(-1, 3)


class _Strings:
    def __init__(self, strings: Sequence[str]) -> None:
        self.strings = strings
        self.question = f"containing one of {counted(len(strings), 'string')}"
        needles = [_utf8(string) for string in strings]
        try:
            nodes = double_array({needle: i for i, needle in enumerate(needles)})
        except EngineError as error:
            why = f"{counted(len(needles), 'string')} have {sum(map(len, needles)):,} bytes"
            hint = "find some of them at a time"
            raise UserError("too many strings to find at once", why=why, hint=hint) from error
        mask = np.uint64((1 << 8 * min(8, *map(len, needles))) - 1)
        beginnings = b"".join(needle[:8].ljust(8, b"\0") for needle in needles)
        self._many = ManyStrings(nodes, np.frombuffer(beginnings, "<u8"), mask)

    def occurrences(self, block: TextBlock) -> Occurrences:
        find = for_steps(find_strings, len(block.data))
        return find(block.data, block.offsets, self._many)


def _utf8(string: str) -> bytes:
    try:
        return string.encode()
    except UnicodeEncodeError as error:
        why = "it has half of a surrogate pair, which no text contains"
        raise UserError(f"cannot find {string!r}", why=why) from error


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogateescape"))
