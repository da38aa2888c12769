"""A table that counts unique words while a corpus is read."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.kernels.byte_strings import (
    MIN_ENTRIES,
    Strings,
    add_one_each,
    find,
    gathered_words,
    grown,
    look_up,
    sorted_order,
    tags_of,
    with_room,
)

WORDS_A_STEP = 1 << 14
"""Words looked up per step; few enough that their data stays in the processor's cache, and the
table is enlarged for at most this many new words."""


class WordTable:
    """Unique words of any length with int64 counts; adding words releases the GIL.

    Not thread-safe: only one thread may call `add` at a time.
    """

    def __init__(self, room: int = MIN_ENTRIES) -> None:
        """Create a table with space for `room` words, a power of two."""
        self._room = room
        # A random basis, so that no text can be crafted whose words all collide.
        self._basis = np.uint64(int.from_bytes(os.urandom(8)))
        self._empty()

    def _empty(self) -> None:
        self._count = 0
        self._slots = np.zeros((2 * self._room, 2), np.uint64)
        # The start of each word in `keys`, and its count.
        self._places = np.zeros((self._room + 1, 2), np.int64)
        self._keys = np.empty(16 * self._room, np.uint8)

    def __len__(self) -> int:
        return self._count

    @property
    def num_bytes(self) -> int:
        """Memory of the table in bytes."""
        return self._slots.nbytes + self._places.nbytes + self._keys.nbytes

    def add(self, data: UInt8Array, edges: Int64Array, counts: Int64Array | None = None) -> None:
        """Count words: word i is `data[edges[i]:edges[i + 1]]`, seen once, or `counts[i]` times.

        No word may be empty.
        """
        data = _read_only(data)
        for first in range(0, len(edges) - 1, WORDS_A_STEP):
            part = edges[first : first + WORDS_A_STEP + 1]
            times = None if counts is None else counts[first : first + WORDS_A_STEP]
            self._add(data, part, times)

    def _add(self, data: UInt8Array, edges: Int64Array, counts: Int64Array | None) -> None:
        numbers = self._numbers(data, edges)
        if counts is None:
            add_one_each(numbers, self._places)
        else:
            np.add.at(self._places[:, 1], numbers, counts)

    def numbers(self, data: UInt8Array, edges: Int64Array) -> Int32Array:
        """Return a number for each word, shape (num_words,), valid until `take`; counts nothing."""
        data = _read_only(data)
        steps = range(0, len(edges) - 1, WORDS_A_STEP)
        parts = [self._numbers(data, edges[i : i + WORDS_A_STEP + 1]) for i in steps]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def known_numbers(self, data: UInt8Array, edges: Int64Array) -> Int32Array:
        """Return the number of each word, shape (num_words,); -1 if the table does not have it."""
        strings = Strings(self._slots, self._places, self._keys)
        data = _read_only(data)
        return find(data, edges, tags_of(data, edges, self._basis), strings)

    def words(self, numbers: npt.NDArray[np.integer]) -> tuple[UInt8Array, Int64Array]:
        """Return the concatenated bytes of numbered words, and their edges."""
        starts = self._places[:, 0]
        edges = np.zeros(len(numbers) + 1, np.int64)
        chosen = numbers.astype(np.int64)
        np.cumsum(starts[chosen + 1] - starts[chosen], out=edges[1:])
        return gathered_words(self._keys, self._places, chosen, edges), edges

    def _numbers(self, data: UInt8Array, edges: Int64Array) -> Int32Array:
        self._make_room(len(edges) - 1, int(edges[-1] - edges[0]))
        strings = Strings(self._slots, self._places, self._keys)
        tags = tags_of(data, edges, self._basis)
        numbers, new = look_up(data, edges, tags, strings, self._count)
        self._count += len(new)
        return numbers

    def _make_room(self, num_words: int, num_bytes: int) -> None:
        size = self._count + num_words
        self._keys = grown(self._keys, int(self._places[self._count, 0]) + num_bytes)
        self._places = grown(self._places, size + 1)
        self._slots = with_room(self._slots, size)

    def take(self) -> WordCounts:
        """Return the words sorted by bytes, with their counts, and empty the table."""
        starts = self._places[: self._count + 1, 0].copy()
        order = sorted_order(self._keys, starts)
        counts = self._places[order, 1]
        data, offsets = self.words(order)
        self._empty()
        return WordCounts(data, offsets, counts)


def _read_only(data: UInt8Array) -> UInt8Array:
    """Return a read-only view, so that functions are compiled for only one kind of array."""
    view = data.view()
    view.flags.writeable = False
    return view
