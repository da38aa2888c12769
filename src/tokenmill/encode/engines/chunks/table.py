"""Chunks of text and the ids of each, in compiled code.

    data ─find─▶ a number for every chunk, and the places of chunks that are new
    new chunks ─(the reference)─▶ ids ─learn─▶ the table
    numbers ─gather─▶ the ids of all chunks, one after another

The table itself is that of `words/byte_strings.py`.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import compiled
from tokenmill.encode.engines.chunks.cuts import NUM_ASCII, Cuts
from tokenmill.records import Int32Array, Int64Array, TokenBatch, UInt32Array
from tokenmill.words.byte_strings import (
    MIN_ENTRIES,
    UInt8Array,
    UInt64Array,
    grown,
    look_up,
    tags_of,
    with_room,
)

BoolArray = npt.NDArray[np.bool_]

MAX_KEPT_BYTES = 128
"""Longer chunks hardly ever come again, so the reference is asked for them every time."""
SPACE = ord(" ")


class Entries(NamedTuple):
    """What is kept, as compiled code sees it. What one lookup needs lies together."""

    slots: UInt64Array
    """As `look_up` has them."""
    places: Int64Array
    """Shape (num_entries + 1, 2): where each entry begins in `keys` and in `ids`."""
    keys: UInt8Array
    ids: UInt32Array


class Found(NamedTuple):
    """The chunks of a batch."""

    numbers: Int32Array
    """Shape (num_chunks,): of an entry, or -1 - i for the i-th chunk that is too long to keep."""
    chunks_before: Int64Array
    """Shape (num_documents + 1,): how many chunks there are before each document."""
    new: Int64Array
    """Shape (num_new, 2): start and stop in the data of chunks that have become entries."""
    long: Int64Array
    """Shape (num_long, 2): those of chunks that are not kept."""


class ChunkTable:
    """Grows with every chunk that it has not seen; the caller decides when to forget."""

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts
        # No text can be made beforehand whose chunks all fall on one slot.
        self._basis = np.uint64(int.from_bytes(os.urandom(8)))
        self.forget()

    def forget(self) -> None:
        """Drop all entries."""
        self._count = 0
        self._entries = Entries(
            slots=np.zeros((2 * MIN_ENTRIES, 2), np.uint64),
            places=np.zeros((MIN_ENTRIES + 1, 2), np.int64),
            keys=np.empty(16 * MIN_ENTRIES, np.uint8),
            ids=np.empty(4 * MIN_ENTRIES, np.uint32),
        )

    @property
    def num_bytes(self) -> int:
        """Memory of all entries."""
        return sum(array.nbytes for array in self._entries)

    def find(self, data: UInt8Array, offsets: Int64Array) -> Found:
        """Cut documents of UTF-8 `data` into chunks; what is new becomes entries without ids."""
        edges = _edges(data, offsets, self._cuts)
        self._make_room(len(edges) - 1, len(data))
        tags, entries = tags_of(data, edges, self._basis), self._entries
        numbers, new, long = look_up(data, edges, tags, *entries[:3], self._count, MAX_KEPT_BYTES)
        self._count += len(new)
        places = np.stack([edges[:-1], edges[1:]], axis=1)
        return Found(numbers, np.searchsorted(edges, offsets), places[new], places[long])

    def learn(self, tokens: TokenBatch) -> None:
        """The ids of the chunks that became entries last."""
        entries, first = self._entries, self._count - len(tokens.offsets) + 1
        start = int(entries.places[first, 1])
        stop = start + len(tokens.ids)
        ids = grown(entries.ids, stop)
        ids[start:stop] = tokens.ids
        entries.places[first : self._count + 1, 1] = tokens.offsets + start
        self._entries = entries._replace(ids=ids)

    def gather(self, found: Found, long: TokenBatch) -> TokenBatch:
        """The ids of the documents of a batch; `long` holds those of its long chunks."""
        entries = self._entries
        ids, offsets = _gather(*found[:2], entries.places, entries.ids, long.offsets, long.ids)
        return TokenBatch(ids, offsets)

    def _make_room(self, num_entries: int, num_bytes: int) -> None:
        entries, size = self._entries, self._count + num_entries
        keys = grown(entries.keys, int(entries.places[self._count, 0]) + num_bytes)
        places, slots = grown(entries.places, size + 1), with_room(entries.slots, size)
        self._entries = Entries(slots, places, keys, entries.ids)


def _edges(data: UInt8Array, offsets: Int64Array, where: Cuts) -> Int64Array:
    """Shape (num_chunks + 1,): where each chunk begins, and the end of the last."""
    cuts = _cuts(data, *where)
    cuts[offsets] = True
    return np.flatnonzero(cuts)


@compiled
def _cuts(data: UInt8Array, pairs: BoolArray, solid: BoolArray, alone: BoolArray) -> BoolArray:
    """Shape (num_bytes + 1,): whether there is a cut before each byte."""
    cuts = np.zeros(len(data) + 1, np.bool_)
    for place in range(1, len(data)):
        byte, last = np.int64(data[place]), np.int64(data[place - 1])
        if byte >= NUM_ASCII:
            if 0xE0 <= byte < 0xF0:
                middle, end = np.int64(data[place + 1]) & 0x3F, np.int64(data[place + 2]) & 0x3F
                cuts[place] = alone[(byte & 0x0F) << 12 | middle << 6 | end]
        elif last < NUM_ASCII:
            cuts[place] = pairs[last, byte]
        elif byte == SPACE:
            before = np.int64(data[place - 2])
            if before >= 0xC0:
                cuts[place] = solid[(before & 0x1F) << 6 | last & 0x3F]
            elif data[place - 3] >= 0xE0:
                first = np.int64(data[place - 3]) & 0x0F
                cuts[place] = solid[first << 12 | (before & 0x3F) << 6 | last & 0x3F]
    return cuts


@compiled
def _gather(
    numbers: Int32Array,
    chunks_before: Int64Array,
    places: Int64Array,
    ids: UInt32Array,
    long_offsets: Int64Array,
    long_ids: UInt32Array,
) -> tuple[UInt32Array, Int64Array]:
    total = 0
    for number in numbers:
        if number >= 0:
            total += places[number + 1, 1] - places[number, 1]
        else:
            total += long_offsets[-number] - long_offsets[-number - 1]
    gathered = np.empty(total, np.uint32)
    offsets = np.zeros(len(chunks_before), np.int64)
    place = 0
    for document in range(len(chunks_before) - 1):
        for chunk in range(chunks_before[document], chunks_before[document + 1]):
            number = numbers[chunk]
            if number >= 0:
                for i in range(places[number, 1], places[number + 1, 1]):
                    gathered[place] = ids[i]
                    place += 1
            else:
                for i in range(long_offsets[-number - 1], long_offsets[-number]):
                    gathered[place] = long_ids[i]
                    place += 1
        offsets[document + 1] = place
    return gathered, offsets
