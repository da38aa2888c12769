"""A compiled hash table that numbers byte strings.

    data, edges ─tags─▶ 32 bits of a hash for every string ─look_up─▶ a number for every string

Strings with equal hashes are compared byte by byte, so collisions are harmless. The table is used
for the words of a corpus and for the chunks of the memo engine.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.memory import byte_at, eight_bytes_at

Kept = TypeVar("Kept", bound=np.generic)

MIN_ENTRIES = 1 << 15
FETCHED_STRINGS = 128
MAX_COMPARED_BYTES = 128
"""Strings that are equal up to here are sorted by Python; there are few of them."""

# The code below has few functions on purpose: passing an array between compiled functions counts
# references, which takes longer than all other work for a byte.


def grown(array: npt.NDArray[Kept], size: int) -> npt.NDArray[Kept]:
    """Return the array if it is large enough, or a copy with twice the needed size."""
    if size <= len(array):
        return array
    larger = np.zeros((2 * size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


@compiled
def rehashed(slots: UInt64Array, size: int) -> UInt64Array:
    """Return a larger table. A slot stores the part of the hash that determines its place."""
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
    """Return up to eight bytes as a little-endian number; `length` bytes can be read."""
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
    """Return 32 bits of a hash of each string, shape (num_strings,).

    Blocks of eight bytes are mixed in by xor, an odd factor and a right shift. The factors are
    those of MurmurHash3's finalizer.
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
def equal_bytes(one: int, other: int, size: int) -> bool:
    """Return whether `size` bytes at two addresses are equal."""
    same = 0
    while same + 8 <= size and eight_bytes_at(one + same) == eight_bytes_at(other + same):
        same += 8
    while same < size and byte_at(one + same) == byte_at(other + same):
        same += 1
    return same == size


class Strings(NamedTuple):
    """The strings of a table."""

    slots: UInt64Array
    """Shape (num_slots, 2), by hash. Column 0 is 0 if the slot is free, else the number of an entry
    + 1 with half of the hash above it. Column 1 has the first bytes, with the length above them (8
    means 8 or more)."""
    places: Int64Array
    """Shape (num_entries + 1, 2); column 0 has the start of each entry in `keys`."""
    keys: UInt8Array


class _Addresses(NamedTuple):
    """The addresses of the arrays of `Strings`."""

    slots: int
    places: int
    keys: int
    mask: int
    """One less than the number of slots."""


@inner
def _find(
    start: int, size: int, tag: np.uint64, short: np.uint64, table: _Addresses
) -> tuple[int, int]:
    """Return the slot of the string at an address and its number; -1 and a free slot if it is new.

    `short` is column 1 of its slot.
    """
    slot, number = int(np.int64(tag)) & table.mask, -1
    entry = eight_bytes_at(table.slots + 16 * slot)
    while entry:
        if entry >> np.uint64(32) == tag and eight_bytes_at(table.slots + 16 * slot + 8) == short:
            number = int(np.int64(entry & np.uint64(0xFFFFFFFF))) - 1
            place = table.places + 16 * number
            key = int(np.int64(eight_bytes_at(place)))
            if size < 8 or (
                int(np.int64(eight_bytes_at(place + 16))) - key == size
                and equal_bytes(start + 7, table.keys + key + 7, size - 7)
            ):
                break
        number = -1
        slot = (slot + 1) & table.mask
        entry = eight_bytes_at(table.slots + 16 * slot)
    return slot, number


@compiled
def look_up(
    data: UInt8Array, edges: Int64Array, tags: UInt64Array, strings: Strings, count: int
) -> tuple[Int32Array, Int64Array]:
    """Return the number of each string, and which strings are new.

    New strings get the numbers `count`, `count` + 1 and so on. The caller provides a free slot for
    every string and space in `keys` for all bytes.
    """
    slots, places, keys = strings
    numbers, new = np.empty(len(tags), np.int32), np.empty(len(tags), np.int64)
    num_new = 0
    mask = len(slots) - 1
    address, length = data.ctypes.data, len(data)
    table = _Addresses(slots.ctypes.data, places.ctypes.data, keys.ctypes.data, mask)
    for first in range(0, len(tags), FETCHED_STRINGS):
        last = min(first + FETCHED_STRINGS, len(tags))
        fetched = np.uint64(0)  # slots that are fetched together arrive in the time of one
        for string in range(first, last):
            fetched ^= slots[np.int64(tags[string]) & mask, 0]
        # Overwritten later; keeps the compiler from removing the reads.
        new[num_new] = np.int64(fetched)
        for string in range(first, last):
            start, size = edges[string], edges[string + 1] - edges[string]
            short = _low_bytes(address, start, length, min(size, 7))
            short |= np.uint64(min(size, 8)) << np.uint64(56)
            slot, number = _find(address + start, size, tags[string], short, table)
            if number < 0:
                number = count + num_new
                slots[slot, 0] = tags[string] << np.uint64(32) | np.uint64(number + 1)
                slots[slot, 1] = short
                key = places[number, 0]
                for i in range(size):
                    keys[key + i] = data[start + i]
                places[number + 1, 0] = key + size
                new[num_new] = string
                num_new += 1
            numbers[string] = number
    return numbers, new[:num_new].copy()


@compiled
def find(data: UInt8Array, edges: Int64Array, tags: UInt64Array, strings: Strings) -> Int32Array:
    """Return the number of each string; -1 if the table does not have it."""
    slots, places, keys = strings
    numbers = np.empty(len(tags), np.int32)
    address, length = data.ctypes.data, len(data)
    table = _Addresses(slots.ctypes.data, places.ctypes.data, keys.ctypes.data, len(slots) - 1)
    for string in range(len(tags)):
        start, size = edges[string], edges[string + 1] - edges[string]
        short = _low_bytes(address, start, length, min(size, 7))
        short |= np.uint64(min(size, 8)) << np.uint64(56)
        numbers[string] = _find(address + start, size, tags[string], short, table)[1]
    return numbers


def with_room(slots: UInt64Array, size: int) -> UInt64Array:
    """Return the slots, enlarged if needed so that `size` entries take at most two thirds."""
    if 3 * size <= 2 * len(slots):
        return slots
    return rehashed(slots, 1 << (3 * size // 2).bit_length())


def sorted_order(data: UInt8Array, offsets: Int64Array) -> Int64Array:
    """Return the indices that sort unique strings by their bytes, shape (num_strings,).

    Seven bytes are compared at a time, and only strings that are still equal are compared further.
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
    """Return the places in a sorted list with a key that is not unique in its group, regrouped."""
    differs = np.ones(len(keys) + 1, np.bool_)
    differs[1:-1] = (keys[1:] != keys[:-1]) | (groups[1:] != groups[:-1])
    places = np.flatnonzero(~(differs[:-1] & differs[1:]))
    return places, np.cumsum(differs[places])


@compiled
def _seven_bytes(data: UInt8Array, starts: Int64Array, stops: Int64Array) -> UInt64Array:
    """Return the next bytes of strings as numbers, with their count (8: more) in the lowest byte.

    The numbers sort like the strings. Unique strings have equal numbers only if both are longer.
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


@compiled
def add_one_each(numbers: Int32Array, places: Int64Array) -> None:
    """Count a table's strings by number; the counts are column 1 of `places`."""
    for number in numbers:
        places[number, 1] += 1


@compiled
def gathered_words(
    keys: UInt8Array, places: Int64Array, numbers: Int64Array, edges: Int64Array
) -> UInt8Array:
    """Return concatenated words, shape (num_bytes,)."""
    data = np.empty(edges[-1], np.uint8)
    for i in range(len(numbers)):
        start, place = places[numbers[i], 0], edges[i]
        for j in range(edges[i + 1] - place):
            data[place + j] = keys[start + j]
    return data
