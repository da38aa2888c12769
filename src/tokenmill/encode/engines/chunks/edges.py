"""Compiled code that cuts texts into chunks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.encode.engines.chunks.cuts import Cuts
from tokenmill.kernels.compiled import byte_at, eight_bytes_at, inlined, inner, trailing_zeros

CHUNKS_A_BLOCK = 128
BLOCK_ROOM = CHUNKS_A_BLOCK + 9
"""A block can have a few more chunks, because edges are found eight bytes at a time."""
SPACE = ord(" ")
_HIGH_BITS = np.uint64(0x8080808080808080)
_ONE = np.uint64(1)


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
