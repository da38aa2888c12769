"""Words of texts in compiled code, where a person would see them, and the tokens that cut them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, UInt8Array, UInt32Array
from tokenmill.kernels.compiled import compiled, inlined, inner

UNKNOWN_WORDS = -1
COLUMN_BITS, WORD = 63, 64
"""Parts of the entry of a code point: its column, and whether it is a letter or a number."""
JOIN, RESOLVE, MARK, CUT, CUT_MIDDLE, CUT_BOTH = range(6)
"""What a scanner does before a code point: nothing; drop the mark, for no boundary is there; set a
mark, where a boundary is if the next class does not forbid it; cut here; at the mark; at both."""
ACTION_BITS = 3
START_STATE, LETTER_STATE = 0, 1


class EncodedTexts(NamedTuple):
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


class WordSpans(NamedTuple):
    """The positions of words in texts."""

    spans: Int64Array
    """Shape (num_words, 2): first byte and one past the last, in the data of all texts."""
    edges: Int64Array
    """Shape (n + 1,): the words of text i are `spans[edges[i]:edges[i + 1]]`."""


class TokenTable(NamedTuple):
    """All tokens as arrays, for compiled functions."""

    data: UInt8Array
    offsets: Int32Array
    """Shape (largest id + 2,): token i is `data[offsets[i]:offsets[i + 1]]`, empty if id i is
    unused."""
    is_part: BoolArray
    """Shape (largest id + 1,): whether a token is a byte fallback or a fragment of characters."""


@inlined
def code_point(data: UInt8Array, at: int, stop: int) -> tuple[int, int]:
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
def spaced_words(
    data: UInt8Array, edges: Int64Array, spaces: BoolArray, each: bool
) -> tuple[Int64Array, Int64Array]:
    """Find runs of non-space characters, or single non-space characters; see WordSpans."""
    spans = np.empty((len(data) // 4 + 16, 2), np.int64)
    counts = np.zeros(len(edges), np.int64)
    count = 0
    for text in range(len(edges) - 1):
        at, stop = edges[text], edges[text + 1]
        start = -1
        while at < stop:
            code, size = code_point(data, at, stop)
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
def unicode_words(
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
    state = START_STATE
    holds = before = False
    while at <= stop:
        code, size = code_point(data, at, stop)
        entry = classes[code]
        cell = transitions[state, entry & COLUMN_BITS]
        state, action = cell >> ACTION_BITS, cell & 7
        if action >= CUT:
            if count + 2 > len(spans):
                spans = _doubled(spans)
            if action != CUT:
                spans[count, 0], spans[count, 1] = start, middle
                count += before
                start, middle = middle, -1
            if action != CUT_MIDDLE:
                spans[count, 0], spans[count, 1] = start, at
                count += holds
                start, holds = at, False
        elif action == MARK:
            before, holds, middle = holds, False, at
        elif action == RESOLVE:
            holds, middle = holds or before, -1
        holds = holds or (entry & WORD) != 0
        at += size
        if state == LETTER_STATE:  # most of all text
            after = _after_letters(data, at, stop, classes)
            holds = holds or after > at
            at = after
    return count, spans


@compiled
def continued(
    texts: EncodedTexts, words: WordSpans, ids: UInt32Array, offsets: Int64Array, table: TokenTable
) -> Int64Array:
    """Return the words of each text that span several tokens, or UNKNOWN_WORDS; shape (n,).

    The tokens of text i are `ids[offsets[i]:offsets[i + 1]]`.
    """
    data, edges = texts
    spans, word_edges = words
    found = np.empty(len(edges) - 1, np.int64)
    ends = np.empty(1024, np.int64)
    for text in range(len(edges) - 1):
        own = ids[offsets[text] : offsets[text + 1]]
        while len(ends) < len(own):
            ends = np.empty(2 * len(ends), np.int64)
        start, stop = edges[text], edges[text + 1]
        # Ignore the space that some tokenizers put before a text that does not begin with one.
        if not (
            _find_ends(data, start, stop, own, table, ends, 0)
            or _find_ends(data, start, stop, own, table, ends, 1)
        ):
            found[text] = UNKNOWN_WORDS
            continue
        count = token = 0
        for word in range(word_edges[text], word_edges[text + 1]):
            while ends[token] <= spans[word, 0]:
                token += 1
            if ends[token] < spans[word, 1]:
                count += 1
                while ends[token] < spans[word, 1]:
                    token += 1
        found[text] = count
    return found


@inner
def _find_ends(
    data: UInt8Array,
    at: int,
    stop: int,
    ids: UInt32Array,
    table: TokenTable,
    ends: Int64Array,
    num_spaces: int,
) -> bool:
    """Set the end of each token in a text; false if the tokens do not spell the text.

    The first `num_spaces` bytes of the first token are passed over, if they are a space.
    """
    pieces, offsets = table.data, table.offsets
    for token in range(len(ids)):
        byte, after = offsets[ids[token]], offsets[ids[token] + 1]
        if token == 0 and num_spaces:
            if after == byte or pieces[byte] != 0x20:
                return False
            byte += 1
        if at + after - byte > stop:
            return False
        while byte < after:
            if pieces[byte] != data[at]:
                return False
            byte, at = byte + 1, at + 1
        ends[token] = at
    return at == stop
