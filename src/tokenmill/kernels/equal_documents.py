"""Loops that hash documents and compare them, token by token."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.byte_strings import equal_bytes
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.memory import byte_at, eight_bytes_at, folded_product, int32_at

OUTSIDE = -1


@compiled
def hash_documents(
    data: UInt8Array, edges: Int64Array, documents: Int64Array, basis: np.uint64
) -> UInt64Array:
    """Return a hash of each of `documents`, shape (n,).

    The bytes of document i are `data[edges[i]:edges[i + 1]]`. Eight at a time are mixed in by a
    128-bit product, as wyhash does.
    """
    hashes = np.empty(len(documents), np.uint64)
    address = data.ctypes.data
    for i in range(len(documents)):
        place, stop = edges[documents[i]], edges[documents[i] + 1]
        code = basis ^ np.uint64(stop - place)
        while place + 8 <= stop:
            word = eight_bytes_at(address + place)
            code = folded_product(code ^ word, np.uint64(0x9E3779B97F4A7C15))
            place += 8
        rest = np.uint64(1)
        while place < stop:
            rest = rest << np.uint64(8) | np.uint64(byte_at(address + place))
            place += 1
        code = folded_product(code ^ rest, np.uint64(0xC4CEB9FE1A85EC53))
        hashes[i] = folded_product(code ^ basis, np.uint64(0xFF51AFD7ED558CCD))
    return hashes


@compiled
def equal_documents(
    table: Int64Array, documents: Int64Array, others: Int64Array, token_bytes: int
) -> Int64Array:
    """Compare pairs of documents and return the tokens of equal ones, shape (num_pairs,).

    Pairs that differ have 0, and those outside their files have `OUTSIDE`. `documents` and `others`
    are shards and indices in them, shape (2, num_pairs). A row of `table` has the addresses of a
    shard's tokens and lengths, its bytes of tokens, and its number of documents.
    """
    result = np.zeros(documents.shape[1], np.int64)
    for i in range(len(result)):
        one, other = table[documents[0, i]], table[others[0, i]]
        length = int32_at(one[1] + 4 * documents[1, i])
        if length != int32_at(other[1] + 4 * others[1, i]):
            continue
        size = length * token_bytes
        start = np.int64(eight_bytes_at(one[1] + 4 * one[3] + 8 * documents[1, i]))
        there = np.int64(eight_bytes_at(other[1] + 4 * other[3] + 8 * others[1, i]))
        if min(start, there) < 0 or start + size > one[2] or there + size > other[2]:
            result[i] = OUTSIDE
        elif equal_bytes(one[0] + start, other[0] + there, size):
            result[i] = length
    return result
