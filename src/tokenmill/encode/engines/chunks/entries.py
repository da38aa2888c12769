"""Compiled code that updates the table of chunks after an encoder has returned new ids."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array, UInt32Array
from tokenmill.encode.engines.chunks.slots import (
    COUNT_SHIFT,
    KEY_BITS,
    MAX_KEPT_IDS,
    MAX_SLOT_BYTES,
    MAX_SLOT_IDS,
    NEVER_KEPT,
    SLOT_WORDS,
    TAG_BITS,
    Entries,
)
from tokenmill.encode.words.byte_strings import UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, eight_bytes_at


@compiled
def keep_ids(
    texts: UInt8Array,
    entries: Entries,
    num_rest: int,
    asked: Int64Array,
    ids: UInt32Array,
    offsets: Int64Array,
) -> int:
    """Store the ids of new entries; return the number of words of `rest` in use.

    The caller must provide enough room in `rest`.
    """
    data, slots, rest = texts.ctypes.data, entries.slots, entries.rest
    for question in range(len(asked)):
        start, stop, at = asked[question, 0], asked[question, 1], asked[question, 2]
        first, count = offsets[question], offsets[question + 1] - offsets[question]
        if at < 0:
            continue
        told = count
        if count > MAX_KEPT_IDS:
            told, count = NEVER_KEPT, 0
        slots[at] = slots[at] & KEY_BITS | np.uint64(told) << COUNT_SHIFT
        if count <= MAX_SLOT_IDS and stop - start <= MAX_SLOT_BYTES:
            both = np.uint64(0)
            for i in range(count):
                both |= np.uint64(ids[first + i]) << np.uint64(32 * i)
            slots[at + 3] = both
            continue
        slots[at + 3] = np.uint64(num_rest)
        for place in range(start + MAX_SLOT_BYTES, stop, 8):
            rest[num_rest] = eight_bytes_at(data + place)
            num_rest += 1
        for i in range(count):
            both = np.uint64(ids[first + i])
            if i & 1:
                rest[num_rest - 1] |= both << np.uint64(32)
            else:
                rest[num_rest] = both
                num_rest += 1
    return num_rest


@compiled
def rehash(slots: UInt64Array, larger: UInt64Array) -> None:
    """Copy all entries to a larger, empty table."""
    mask = len(larger) // SLOT_WORDS - 1
    for old in range(0, len(slots), SLOT_WORDS):
        if slots[old]:
            slot = np.int64(slots[old] & TAG_BITS) & mask
            while larger[slot * SLOT_WORDS]:
                slot = (slot + 1) & mask
            for word in range(SLOT_WORDS):
                larger[slot * SLOT_WORDS + word] = slots[old + word]


@compiled
def complete(
    known_ids: UInt32Array,
    pending: Int64Array,
    ids: UInt32Array,
    offsets: Int64Array,
    completed: UInt32Array,
) -> None:
    """Write the ids of all chunks in order: known ones, and the requested ones from `ids`."""
    taken = size = 0
    for chunk in range(len(pending)):
        before, question = pending[chunk, 0], pending[chunk, 1]
        for i in range(taken, before):
            completed[size] = known_ids[i]
            size += 1
        taken = before
        for i in range(offsets[question], offsets[question + 1]):
            completed[size] = ids[i]
            size += 1
    for i in range(taken, len(known_ids)):
        completed[size] = known_ids[i]
        size += 1
