"""Normalizers and Metaspace in compiled code, for SentencePiece-style models.

    text ─characters─▶ their images ─spaces─▶ bytes, with ▁ for each remaining space

Every character is replaced by its image. Texts in which a normalizer changes several characters
together are left to the reference, unless the change follows from the images: see
`encode/engines/native/character_table.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, UInt8Array
from tokenmill.kernels.byte_strings import grown
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.constants import AT_START, JOIN_SPACES, PREFIX, STRIP_END
from tokenmill.kernels.memory import byte_at, code_at, size_at
from tokenmill.kernels.normalized_words import NUM_TABLE_CHARACTERS

LINE_END, BEYOND = NUM_TABLE_CHARACTERS, NUM_TABLE_CHARACTERS + 1
"""The rows of CR LF, which is one grapheme, and of characters beyond the table."""
NUM_ROWS = NUM_TABLE_CHARACTERS + 2

LEFT_OUT, CHANGED, KEY, JOINS, BLANK, COMPOSES, COMPOSED = (1 << bit for bit in range(7))
"""Bits of a character's kind, in order: a text with it is left to the reference; it has a different
image; a key of the charsmap begins with it; it may belong to the grapheme before it; its image is
white space other than a space; it may compose with what precedes it; or with what follows it."""
SPACE = 0x20
MARK_1, MARK_2, MARK_3 = "▁".encode()
SHORT_GRAPHEME = 6
"""Graphemes with fewer bytes are looked up as a whole."""


class CharacterTable(NamedTuple):
    """How characters are normalized."""

    kinds: UInt8Array
    """Shape (NUM_ROWS,): the bits above."""
    offsets: Int32Array
    """Shape (NUM_ROWS + 1,): where the image of a CHANGED character begins in `images`."""
    images: UInt8Array
    orders: UInt8Array
    """Shape (NUM_ROWS,): the combining class of marks that normalization may reorder, else 0."""


class Normalized(NamedTuple):
    """Normalized texts, concatenated."""

    data: UInt8Array
    offsets: Int64Array
    """Shape (num_texts + 1,)."""
    left_out: BoolArray
    """Shape (num_texts,): texts left to the reference; they have no bytes in `data`."""


class Normalizer:
    """Normalizes texts in compiled code."""

    def __init__(self, table: CharacterTable, rules: int) -> None:
        longest = int(np.diff(table.offsets).max())
        self._room = 3 * max(longest, 4) + 8
        self._table = table
        self._rules = rules

    def normalize(self, data: UInt8Array, places: Int64Array) -> Normalized:
        """Normalize `data[start:stop]`, valid UTF-8, for each row of `places`."""
        num_bytes = int((places[:, 1] - places[:, 0]).sum())
        made = np.empty(2 * num_bytes + self._room * (1 + len(places) // 64), np.uint8)
        edges, left_out = np.zeros(len(places) + 1, np.int64), np.zeros(len(places), np.bool_)
        rules = (self._rules, self._room)
        done = 0
        while True:
            rest = (places[done:], self._table, rules, made, edges[done:], left_out[done:])
            done += _normalize(data, *rest)
            if done == len(places):
                break
            made = grown(made, len(made) + 1)
        return Normalized(made[: edges[-1]], edges, left_out)


@inlined
def _row(data: int, place: int) -> int:
    """Return the row of the character at a place."""
    code = code_at(data, place)
    return code if code < NUM_TABLE_CHARACTERS else BEYOND


@inlined
def _is_mark(address: int) -> bool:
    """Whether a ▁ begins at an address; three bytes must be readable."""
    return (
        byte_at(address) == MARK_1
        and byte_at(address + 1) == MARK_2
        and byte_at(address + 2) == MARK_3
    )


@inlined
def _ends_line(data: UInt8Array, place: int, stop: int) -> bool:
    return place < stop and data[place] == 0x0A


@inlined
def _write_image(
    made: UInt8Array, size: int, source: int, count: int, after_space: bool, joins: int
) -> int:
    """Write the bytes of an image, with ▁ for each remaining space; return the new size."""
    for i in range(count):
        byte = byte_at(source + i)
        if byte != SPACE:
            made[size] = byte
            size += 1
        elif not (after_space and joins):
            made[size], made[size + 1], made[size + 2] = MARK_1, MARK_2, MARK_3
            size += 3
        after_space = byte == SPACE
    return size


@compiled
def _normalize(  # noqa: C901
    data: UInt8Array,
    places: Int64Array,
    table: CharacterTable,
    options: tuple[int, int],
    made: UInt8Array,
    edges: Int64Array,
    left_out: BoolArray,
) -> int:
    """Write normalized texts from `edges[0]` on; return how many texts fit into `made`.

    options: the rules, and the most bytes that one character can take
    """
    (kinds, offsets, images, orders), (rules, room) = table, options
    address, size = data.ctypes.data, edges[0]
    for text in range(len(left_out)):
        place, stop, kept, order, before = places[text, 0], places[text, 1], size, 0, 0
        after_space, is_bare = False, rules & PREFIX != 0
        while place < stop:
            if size + room > len(made):
                return text
            row, length = _row(address, place), size_at(address, place)
            if row == 0x0D and _ends_line(data, place + 1, stop):
                row, length = LINE_END, 2
            source, count, kind = address + place, length, kinds[row]
            if kind & CHANGED:
                source, count = images.ctypes.data + offsets[row], offsets[row + 1] - offsets[row]
            if kind & KEY and place + length < stop:
                following = place + length
                short = length + size_at(address, following) < SHORT_GRAPHEME
                left_out[text] |= short and kinds[_row(address, following)] & JOINS != 0
            unordered = orders[row] and orders[row] < order
            composing = kind & COMPOSES and (order or before & COMPOSED)
            left_out[text] |= kind & LEFT_OUT or unordered or composing
            left_out[text] |= is_bare and rules & AT_START and not count
            if left_out[text]:
                kept = size = edges[text]
                break
            if count:  # a dropped character neither composes nor keeps its neighbours apart
                order, before = orders[row], kind
            place += length
            if is_bare and count:
                if byte_at(source) != SPACE and not (count >= 3 and _is_mark(source)):
                    made[size], made[size + 1], made[size + 2] = MARK_1, MARK_2, MARK_3
                    size += 3
                is_bare = False
            size = _write_image(made, size, source, count, after_space, rules & JOIN_SPACES)
            after_space = byte_at(source + count - 1) == SPACE if count else after_space
            if count and not after_space and not kind & BLANK:
                kept = size
        if rules & STRIP_END:
            size = kept
        edges[text + 1] = size
    return len(left_out)
