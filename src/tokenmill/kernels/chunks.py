"""The hash table of chunks, for compiled code: most lookups cost a single cache miss.

A slot has 32 bytes and holds a chunk and its ids. If a chunk has more than 16 bytes or two ids, the
remainder is in a separate array, `rest`.

    word 0    32 bits of the hash, 8 of the length, 24 of the number of ids (see below); 0 if free
    words 1-2 the first 16 bytes of the chunk, padded with zeros
    word 3    two ids, the first one lowest; or the index in `rest` of the remaining bytes, eight
              per word, followed by the ids, two per word

Chunks are processed in blocks: find the edges of the chunks, hash them, prefetch their slots, then
compare each one and write its ids. So the cache misses of a block overlap.

The functions of this module are few and long on purpose: passing an array from one compiled
function to another counts references, which takes longer than all other work per byte. They read
from raw addresses: `data` must have `PADDING` bytes after the last text.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import BoolArray, Int64Array, UInt8Array, UInt32Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.memory import (
    byte_at,
    eight_bytes_at,
    folded_product,
    prefetch,
    trailing_zeros,
)

SLOT_WORDS = 4
MAX_SLOT_BYTES = 16
MAX_SLOT_IDS = 2
PADDING = 16
MAX_KEPT_BYTES = 128
"""Longer chunks rarely repeat, so they are not cached: the encoder encodes them every time."""
MAX_KEPT_IDS = 512
"""Chunks with more ids are not cached either."""
NEVER_KEPT, NEW = 0x7FFFFF, 0x800000
"""Special values of the number of ids. Word 3 of a NEW entry holds the start of the chunk in its
low 40 bits, and above them 1 + the index in `asked` of the request for its ids."""

DOCUMENT, PLACE, NUM_IDS, NUM_ASKED, NUM_PENDING, NUM_NEW = range(6)
"""Indexes into the `state` of `find_ids`."""

TAG_BITS, KEY_BITS = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)
_SIZE_SHIFT, COUNT_SHIFT = np.uint64(32), np.uint64(40)
_ONE, _HALF = np.uint64(1), np.uint64(32)
CHUNKS_A_BLOCK = 128
BLOCK_ROOM = CHUNKS_A_BLOCK + 9
"""A block can have a few more chunks, because edges are found eight bytes at a time."""
SPACE = ord(" ")
_HIGH_BITS = np.uint64(0x8080808080808080)
NUM_ASCII = 0x80
NUM_CHARACTERS = 0x10000
"""The size of the tables; characters beyond the first plane of Unicode are never solid."""


class Entries(NamedTuple):
    """The table."""

    slots: UInt64Array
    """Shape (num_slots * SLOT_WORDS,); the number of slots is a power of two."""
    rest: UInt64Array
    secrets: tuple[np.uint64, np.uint64]
    """The secrets of the hash."""


class Block(NamedTuple):
    """Buffers for the chunks of a block."""

    edges: Int64Array
    """Shape (BLOCK_ROOM + 1,)."""
    found: Int64Array
    """Shape (BLOCK_ROOM,): where the slot of each chunk begins."""
    heads: UInt64Array
    """Shape (BLOCK_ROOM, 3): words 0 to 2 of each slot."""


class Output(NamedTuple):
    """The arrays that `find_ids` writes to."""

    state: Int64Array
    """Shape (6,): at first, `DOCUMENT` and `PLACE` say where to start, and the others are 0."""
    ids: UInt32Array
    """The ids of chunks that are in the table, in order."""
    asked: Int64Array
    """Shape (n, 3): start and stop of each chunk without known ids, and its slot or -1."""
    pending: Int64Array
    """Shape (n, 2): for each occurrence of such a chunk, the number of ids before it and its index
    in `asked`."""
    known: Int64Array
    """Shape (num_documents + 1, 2): ids and pending chunks before the end of each document."""


@inner
def hash_chunks(data: int, count: int, block: Block, entries: Entries) -> None:
    """Write words 0 to 2 of the slot of each chunk to `heads`, and prefetch the slot.

    Like wyhash, the hash xors 16 bytes at a time with two secrets, multiplies the halves to
    128 bits, and folds the product.
    """
    edges, heads = block.edges, block.heads
    low, high = entries.secrets
    slots, mask = entries.slots.ctypes.data, len(entries.slots) // SLOT_WORDS - 1
    for chunk in range(count):
        start = data + edges[chunk]
        size = edges[chunk + 1] - edges[chunk]
        first, second = eight_bytes_at(start), eight_bytes_at(start + 8)
        if size < 8:
            first &= (_ONE << np.uint64(8 * size)) - _ONE
            second = np.uint64(0)
        elif size < 16:
            second &= (_ONE << np.uint64(8 * size - 64)) - _ONE
        code = folded_product(first ^ low, second ^ high ^ np.uint64(size))
        for place in range(MAX_SLOT_BYTES, min(size, MAX_KEPT_BYTES), 8):
            word = eight_bytes_at(start + place)
            if size - place < 8:
                word &= (_ONE << np.uint64(8 * (size - place))) - _ONE
            code = folded_product(code ^ word ^ low, high)
        tag = code & TAG_BITS
        heads[chunk, 0] = tag | np.uint64(size) << _SIZE_SHIFT
        heads[chunk, 1] = first
        heads[chunk, 2] = second
        prefetch(slots + 32 * (int(tag) & mask))


@inner
def _same_rest(chunk: int, size: int, kept: int) -> bool:
    """Whether the bytes of a chunk after its first 16 equal those at an address."""
    for place in range(MAX_SLOT_BYTES, size, 8):
        differing = eight_bytes_at(chunk + place) ^ eight_bytes_at(kept + place - MAX_SLOT_BYTES)
        if size - place < 8:
            differing &= (_ONE << np.uint64(8 * (size - place))) - _ONE
        if differing:
            return False
    return True


@inner
def look_up(data: int, count: int, block: Block, entries: Entries) -> int:
    """Write where the slot of each chunk begins, -1 for long ones; return how many are new."""
    edges, found, heads = block
    slots, rest = entries.slots, entries.rest.ctypes.data
    num_new = 0
    mask = len(slots) // SLOT_WORDS - 1
    for chunk in range(count):
        start, size = edges[chunk], edges[chunk + 1] - edges[chunk]
        key, first, second = heads[chunk, 0], heads[chunk, 1], heads[chunk, 2]
        slot = np.int64(key & TAG_BITS) & mask
        at = slot * SLOT_WORDS if size <= MAX_KEPT_BYTES else -1
        while at >= 0:
            if not slots[at]:
                slots[at] = key | np.uint64(NEW) << COUNT_SHIFT
                slots[at + 1], slots[at + 2] = first, second
                slots[at + 3] = np.uint64(start)
                num_new += 1
                break
            if slots[at] & KEY_BITS == key and slots[at + 1] == first and slots[at + 2] == second:
                if size <= MAX_SLOT_BYTES:
                    break
                kept = rest + 8 * int(slots[at + 3])
                if np.int64(slots[at] >> COUNT_SHIFT) == NEW:
                    kept = data + int(slots[at + 3] & KEY_BITS) + MAX_SLOT_BYTES
                if _same_rest(data + start, size, kept):
                    break
            slot = (slot + 1) & mask
            at = slot * SLOT_WORDS
        found[chunk] = at
    return num_new


@inner
def write_ids(num_chunks: int, block: Block, entries: Entries, output: Output) -> None:
    """Write the ids of known chunks, and request those of the others."""
    edges, found, slots, rest = block.edges, block.found, entries.slots, entries.rest
    state, ids, asked, pending, _ = output
    num_ids, num_asked, num_pending = state[NUM_IDS], state[NUM_ASKED], state[NUM_PENDING]
    for chunk in range(num_chunks):
        at, size = found[chunk], edges[chunk + 1] - edges[chunk]
        both = slots[at + 3]
        count = np.int64(slots[at] >> COUNT_SHIFT) if at >= 0 else NEVER_KEPT
        if count <= MAX_SLOT_IDS and size <= MAX_SLOT_BYTES:
            ids[num_ids] = np.uint32(both)
            ids[num_ids + 1] = np.uint32(both >> _HALF)
            num_ids += count
            continue
        if count <= MAX_KEPT_IDS:
            first = np.int64(both) + (max(size - 9, 0) >> 3)
            for i in range(count):
                ids[num_ids + i] = np.uint32(rest[first + (i >> 1)] >> np.uint64(32 * (i & 1)))
            num_ids += count
            continue
        question = np.int64(both >> COUNT_SHIFT) - 1
        if count == NEVER_KEPT or question < 0:
            question = num_asked
            asked[num_asked, 0], asked[num_asked, 1] = edges[chunk], edges[chunk + 1]
            asked[num_asked, 2] = at if count == NEW else -1
            num_asked += 1
            if count == NEW:
                slots[at + 3] = both | np.uint64(num_asked) << COUNT_SHIFT
        pending[num_pending, 0], pending[num_pending, 1] = num_ids, question
        num_pending += 1
    state[NUM_IDS], state[NUM_ASKED], state[NUM_PENDING] = num_ids, num_asked, num_pending


@compiled
def find_ids(
    texts: UInt8Array,
    offsets: Int64Array,
    cuts: Cuts,
    entries: Entries,
    room: int,
    block: Block,
    output: Output,
) -> None:
    """Cut documents into chunks, and write the ids of those that are in the table.

    Stops after the last document, or when an array or the `room` for new entries may be too small
    for another block.

    offsets: shape (num_documents + 1,), the edges of documents in `texts`
    """
    state, ids, asked, pending, known = output
    data, addresses = texts.ctypes.data, addresses_of(cuts)
    most_ids = len(ids) - BLOCK_ROOM * MAX_KEPT_IDS
    most_asked, most_pending = len(asked) - BLOCK_ROOM, len(pending) - BLOCK_ROOM
    most_new = room - BLOCK_ROOM
    document, place = state[DOCUMENT], state[PLACE]
    while document < len(offsets) - 1:
        stop = offsets[document + 1]
        while place < stop:
            is_full = (state[NUM_IDS] > most_ids) | (state[NUM_ASKED] > most_asked)
            is_full |= (state[NUM_PENDING] > most_pending) | (state[NUM_NEW] > most_new)
            if is_full:  # one branch compiles faster than four
                break
            count = find_edges(data, place, stop, addresses, block.edges)
            hash_chunks(data, count, block, entries)
            state[NUM_NEW] += look_up(data, count, block, entries)
            write_ids(count, block, entries, output)
            place = block.edges[count]
        if place < stop:
            break
        document += 1
        known[document, 0], known[document, 1] = state[NUM_IDS], state[NUM_PENDING]
    state[DOCUMENT], state[PLACE] = document, place


class CutAddresses(NamedTuple):
    """The addresses of the arrays of `Cuts`."""

    pairs: int
    solid: int
    alone: int


@inlined
def addresses_of(cuts: Cuts) -> CutAddresses:
    """Return the addresses of the arrays of `Cuts`."""
    return CutAddresses(cuts.pairs.ctypes.data, cuts.solid.ctypes.data, cuts.alone.ctypes.data)


@inner
def _is_cut(data: int, place: int, cuts: CutAddresses) -> int:
    """Whether to cut before the byte at `place`."""
    byte, last = byte_at(data + place), byte_at(data + place - 1)
    if byte & 0xF0 == 0xE0:
        middle, end = byte_at(data + place + 1) & 0x3F, byte_at(data + place + 2) & 0x3F
        return byte_at(cuts.alone + ((byte & 0x0F) << 12 | middle << 6 | end))
    if byte < 0x80 and last < 0x80:
        return byte_at(cuts.pairs + (last << 7 | byte))
    if byte != SPACE:
        return 0
    before = byte_at(data + place - 2)
    if before >= 0xC0:
        return byte_at(cuts.solid + ((before & 0x1F) << 6 | last & 0x3F))
    first = byte_at(data + place - 3)
    if first < 0xE0:  # the last character has four bytes
        return 0
    return byte_at(cuts.solid + ((first & 0x0F) << 12 | (before & 0x3F) << 6 | last & 0x3F))


@inner
def find_edges(data: int, place: int, stop: int, cuts: CutAddresses, edges: Int64Array) -> int:
    """Write the edges of the chunks from `place` on; return the number of chunks."""
    edges[0] = place
    count = 0
    place += 1
    while place < stop and count < CHUNKS_A_BLOCK:
        word = eight_bytes_at(data + place)
        last = byte_at(data + place - 1)
        if last < 0x80 and not word & _HIGH_BITS and place + 8 <= stop:
            bits = np.uint64(0)
            for i in range(8):
                byte = byte_at(data + place + i)
                bits |= np.uint64(byte_at(cuts.pairs + (last << 7 | byte))) << np.uint64(i)
                last = byte
            while bits:
                count += 1
                edges[count] = place + trailing_zeros(bits)
                bits &= bits - _ONE
            place += 8
            continue
        if _is_cut(data, place, cuts):
            count += 1
            edges[count] = place
        place += 1
    if place >= stop:
        count += 1
        edges[count] = stop
    return count


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


class Cuts(NamedTuple):
    """Where a text is cut."""

    pairs: BoolArray
    """Shape (128, 128): whether to cut between two ASCII characters."""
    solid: BoolArray
    """Shape (65,536,): whether to cut between a character and a space."""
    alone: BoolArray
    """Shape (65,536,): whether to cut before a character; false below U+0800."""
