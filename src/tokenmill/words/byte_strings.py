"""Numbers for byte strings: a hash table, in compiled code.

    data, edges ─tags─▶ 32 bits of a hash for every string ─look_up─▶ a number for every string

Equal hashes prove nothing: the bytes of a string are compared before its number is given. Words
of a corpus and chunks of the memo engine are looked up with this.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import byte_at, compiled, eight_bytes_at, inlined
from tokenmill.records import Int32Array, Int64Array

UInt8Array = npt.NDArray[np.uint8]
UInt64Array = npt.NDArray[np.uint64]
Kept = TypeVar("Kept", bound=np.generic)

MIN_ENTRIES = 1 << 15
FETCHED_STRINGS = 128
MAX_COMPARED_BYTES = 128
"""Strings that are equal so far are sorted by Python after that: they are few."""

# What follows is few functions on purpose: passing arrays from one compiled function to another
# counts references, which takes longer than all else that is done for a byte.


def grown(array: npt.NDArray[Kept], size: int) -> npt.NDArray[Kept]:
    """The array, or a copy with room for twice what is needed."""
    if size <= len(array):
        return array
    larger = np.zeros((2 * size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def rehashed(slots: UInt64Array, size: int) -> UInt64Array:
    """Slots are found by the half of the hash that they hold, so that it is all that is needed."""
    larger = np.zeros((size, 2), np.uint64)
    for old in range(len(slots)):
        if slots[old, 0]:
            slot = np.int64(slots[old, 0] >> np.uint64(32)) & (size - 1)
            while larger[slot, 0]:
                slot = (slot + 1) & (size - 1)
            larger[slot, 0], larger[slot, 1] = slots[old, 0], slots[old, 1]
    return larger


@inlined
def _low_bytes(data: int, place: int, length: int, size: int) -> np.uint64:
    """Up to eight bytes as a number, the first of them lowest; `length` bytes can be read."""
    if place + 8 <= length:
        value = eight_bytes_at(data + place)
        if size < 8:
            value &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
    else:
        value = np.uint64(0)
        for i in range(min(size, 8)):
            value |= np.uint64(byte_at(data + place + i)) << np.uint64(8 * i)
    return value


@compiled
def tags_of(data: UInt8Array, edges: Int64Array, basis: np.uint64) -> UInt64Array:
    """Shape (num_strings,): 32 bits of a hash of each, eight bytes at a time.

    A block is mixed in by xor, an odd factor and a shift to the right, as in MurmurHash3's
    finalizer, whose factors these are.
    """
    tags = np.empty(len(edges) - 1, np.uint64)
    address, length = data.ctypes.data, len(data)
    for string in range(len(tags)):
        place, stop = edges[string], edges[string + 1]
        code = basis ^ np.uint64(stop - place)
        while place < stop:
            code ^= _low_bytes(address, place, length, stop - place)
            code *= np.uint64(0xFF51AFD7ED558CCD)
            code ^= code >> np.uint64(33)
            place += 8
        code *= np.uint64(0xC4CEB9FE1A85EC53)
        tags[string] = code >> np.uint64(32)
    return tags


@inlined
def _equal(one: int, other: int, size: int) -> bool:
    """Whether bytes from two addresses on are the same."""
    same = 0
    while same + 8 <= size and eight_bytes_at(one + same) == eight_bytes_at(other + same):
        same += 8
    while same < size and byte_at(one + same) == byte_at(other + same):
        same += 1
    return same == size


@compiled
def look_up(
    data: UInt8Array,
    edges: Int64Array,
    tags: UInt64Array,
    slots: UInt64Array,
    places: Int64Array,
    keys: UInt8Array,
    count: int,
) -> tuple[Int32Array, Int64Array]:
    """Numbers of strings, and which of them are new.

    slots: shape (num_slots, 2), by hash; 0 where free, else an entry's number + 1 with half of the
    hash above it, and the first bytes with the length above them, of which 8 means 8 or more
    places: shape (num_entries + 1, 2); in column 0, where each entry begins in `keys`

    A new string becomes entry `count` and so on. The caller has made room: a free slot for every
    string, and keys for all of the bytes.
    """
    numbers, new = np.empty(len(tags), np.int32), np.empty(len(tags), np.int64)
    num_new = 0
    mask = len(slots) - 1
    address, length = data.ctypes.data, len(data)
    kept = keys.ctypes.data
    for first in range(0, len(tags), FETCHED_STRINGS):
        last = min(first + FETCHED_STRINGS, len(tags))
        fetched = np.uint64(0)  # read all at once, slots reach the cache in the time of one
        for string in range(first, last):
            fetched ^= slots[np.int64(tags[string]) & mask, 0]
        new[num_new] = np.int64(fetched)  # overwritten, but not left out by the compiler
        for string in range(first, last):
            start, size = edges[string], edges[string + 1] - edges[string]
            tag = tags[string]
            short = _low_bytes(address, start, length, min(size, 7))
            short |= np.uint64(min(size, 8)) << np.uint64(56)
            slot = np.int64(tag) & mask
            number = np.int64(-1)
            while slots[slot, 0]:
                if slots[slot, 1] == short and slots[slot, 0] >> np.uint64(32) == tag:
                    number = np.int64(slots[slot, 0] & np.uint64(0xFFFFFFFF)) - 1
                    key = places[number, 0]
                    if size < 8 or (
                        places[number + 1, 0] - key == size
                        and _equal(address + start + 7, kept + key + 7, size - 7)
                    ):
                        break
                number = np.int64(-1)
                slot = (slot + 1) & mask
            if number < 0:
                number = np.int64(count + num_new)
                slots[slot, 0] = tag << np.uint64(32) | np.uint64(number + 1)
                slots[slot, 1] = short
                key = places[number, 0]
                for i in range(size):
                    keys[key + i] = data[start + i]
                places[number + 1, 0] = key + size
                new[num_new] = string
                num_new += 1
            numbers[string] = number
    return numbers, new[:num_new].copy()


def with_room(slots: UInt64Array, size: int) -> UInt64Array:
    """The slots, or more of them: at most two thirds are ever taken by `size` entries."""
    if 3 * size <= 2 * len(slots):
        return slots
    return rehashed(slots, 1 << (3 * size // 2).bit_length())


def sorted_order(data: UInt8Array, offsets: Int64Array) -> Int64Array:
    """Shape (num_strings,): the indices of unique strings in the order of their bytes.

    Seven bytes are compared at a time, and only strings that are equal so far are compared on.
    """
    keys = _seven_bytes(data, offsets[:-1], offsets[1:])
    order = np.argsort(keys)
    places, groups = _tied(keys[order], np.zeros(len(order), np.int64))
    for depth in range(7, MAX_COMPARED_BYTES, 7):
        if not len(places):
            return order
        strings = order[places]
        keys = _seven_bytes(data, offsets[strings] + depth, offsets[strings + 1])
        within = np.lexsort((keys, groups))
        order[places] = strings[within]
        still, finer = _tied(keys[within], groups)
        places, groups = places[still], finer
    rest = [
        (group, data[offsets[string] : offsets[string + 1]].tobytes(), string)
        for group, string in zip(groups.tolist(), order[places].tolist(), strict=True)
    ]
    order[places] = [string for *_, string in sorted(rest)]
    return order


def _tied(keys: UInt64Array, groups: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Places in a sorted list whose key another of the group has too, and new groups of these."""
    differs = np.ones(len(keys) + 1, np.bool_)
    differs[1:-1] = (keys[1:] != keys[:-1]) | (groups[1:] != groups[:-1])
    places = np.flatnonzero(~(differs[:-1] & differs[1:]))
    return places, np.cumsum(differs[places])


@compiled
def _seven_bytes(data: UInt8Array, starts: Int64Array, stops: Int64Array) -> UInt64Array:
    """The next bytes of strings as numbers, with how many there are (8: more) in the lowest byte.

    Numbers have the order of the strings; two of unique strings are equal only if both have more.
    """
    keys = np.empty(len(starts), np.uint64)
    for string in range(len(starts)):
        start = starts[string]
        left = min(stops[string] - start, 8)
        key = np.uint64(0)
        for i in range(7):
            key = key << np.uint64(8)
            if i < left:
                key |= np.uint64(data[start + i])
        keys[string] = key << np.uint64(8) | np.uint64(left)
    return keys
