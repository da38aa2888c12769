"""A loop that finds many strings in texts at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.memory import eight_bytes_at

NEVER_IN_UTF8 = 255
FILTER_BITS = 20


class ManyStrings(NamedTuple):
    """Strings to find."""

    nodes: Int32Array
    """A trie of them, see `double_array`."""
    beginnings: UInt64Array
    """Shape (num_strings,): their first eight bytes, as little-endian numbers."""
    mask: np.uint64
    """The bytes, of eight, that all strings have: as many as the shortest one."""


@inner
def _hash(eight_bytes: np.uint64, mask: np.uint64) -> np.uint64:
    product = (eight_bytes & mask) * np.uint64(0x9E3779B97F4A7C15)
    return product >> np.uint64(64 - FILTER_BITS)


@compiled
def find_strings(data: UInt8Array, offsets: Int64Array, strings: ManyStrings) -> Int64Array:
    """Return the occurrences of strings in documents, `data[offsets[i]:offsets[i + 1]]`.

    Occurrences of one string do not overlap; the first one counts. Those of different strings may.

    Returns:
        Where each begins and ends in `data`, and the number of its string, shape (n, 3).
    """
    nodes, beginnings, mask = strings
    # Most places need no look at the trie, which is far larger than the processor's cache.
    may_begin = np.zeros(1 << FILTER_BITS, np.bool_)
    for beginning in beginnings:
        may_begin[_hash(beginning, mask)] = True
    address, root = data.ctypes.data, np.int64(nodes[0, 0]) >> 8
    last_ends = np.zeros(len(beginnings), np.int64)
    found, count = np.empty((1024, 3), np.int64), 0
    for document in range(len(offsets) - 1):
        stop = offsets[document + 1]
        for start in range(offsets[document], stop):
            if (
                start + 8 <= len(data)
                and not may_begin[_hash(eight_bytes_at(address + start), mask)]
            ):
                continue
            base = root
            for i in range(start, stop):
                label = np.int64(data[i])
                node = base ^ label
                if label == NEVER_IN_UTF8 or nodes[node, 0] & 0xFF != label:
                    break
                base = np.int64(nodes[node, 0]) >> 8
                string = nodes[node, 1]
                if string >= 0 and last_ends[string] <= start:
                    last_ends[string] = i + 1
                    if count == len(found):
                        found = np.concatenate((found, np.empty_like(found)))
                    found[count, 0], found[count, 1], found[count, 2] = start, i + 1, string
                    count += 1
    return found[:count].copy()
