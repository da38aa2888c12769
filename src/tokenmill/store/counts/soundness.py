"""Checks of word arrays before compiled code, which does not check bounds, uses them."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.encode.words.counts import UInt8Array, WordCounts
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.store.manifest import MAX_COUNT

_PROBLEMS = (
    "",
    "its offsets do not ascend from 0 to the end of its words",
    "a word is not UTF-8",
    "its words are not sorted by their bytes",
    "a count is below 1, or the occurrences of a word exceed 2^53 bytes",
)


def check_words(words: WordCounts) -> str:
    """Return what is wrong with words that were read from a file; "" if nothing is."""
    return _PROBLEMS[_problem(words.data, words.offsets, words.counts)]


@compiled
def _problem(data: UInt8Array, offsets: Int64Array, counts: Int64Array) -> int:
    if len(offsets) != len(counts) + 1 or offsets[0] != 0 or offsets[-1] != len(data):
        return 1
    total = np.int64(0)
    for word in range(len(counts)):
        if offsets[word + 1] <= offsets[word] or offsets[word + 1] > len(data):
            return 1
        length = offsets[word + 1] - offsets[word]
        if counts[word] < 1 or counts[word] > (MAX_COUNT - total) // length:
            return 4
        total += counts[word] * length
    for word in range(len(counts)):
        if not _is_utf8(data, offsets[word], offsets[word + 1]):
            return 2
        if word and not _precedes(data, offsets[word - 1], offsets[word], offsets[word + 1]):
            return 3
    return 0


@inner
def _is_utf8(data: UInt8Array, place: int, stop: int) -> bool:
    while place < stop:
        lead = np.int64(data[place])
        size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if 0x80 <= lead < 0xC2 or lead > 0xF4 or place + size > stop:
            return False
        code = lead & (0x7F >> size) if size > 1 else lead
        for i in range(1, size):
            code = code << 6 | np.int64(data[place + i]) & 0x3F
            if data[place + i] & 0xC0 != 0x80:
                return False
        is_surrogate, least = 0xD800 <= code < 0xE000, 0x800 if size == 3 else 0x10000
        if size > 2 and (code < least or code > 0x10FFFF or is_surrogate):
            return False
        place += size
    return True


@inner
def _precedes(data: UInt8Array, first: int, second: int, stop: int) -> bool:
    """Return whether the word in [first, second) sorts before the one in [second, stop)."""
    shorter = min(second - first, stop - second)
    for i in range(shorter):
        if data[first + i] != data[second + i]:
            return bool(data[first + i] < data[second + i])
    return second - first < stop - second
