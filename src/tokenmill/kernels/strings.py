"""A loop that finds many strings in texts at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.memory import eight_bytes_at

NEVER_IN_UTF8 = 255
FILTER_BITS = 20


class ManyStrings(NamedTuple):
    """Strings to find."""

    nodes: Int32Array
    """A trie of them, see `double_array`."""
    may_begin: BoolArray
    """Shape (1 << FILTER_BITS,): whether a string begins with bytes that have this hash. A trie
    of many strings is far larger than the processor's cache, but most places need no look at it."""
    mask: np.uint64
    """The bytes, of eight, that are hashed: as many as the shortest string has."""


@inner
def _hash(eight_bytes: np.uint64, mask: np.uint64) -> np.uint64:
    product = (eight_bytes & mask) * np.uint64(0x9E3779B97F4A7C15)
    return product >> np.uint64(64 - FILTER_BITS)


@compiled
def mark_beginnings(beginnings: UInt64Array, mask: np.uint64, may_begin: BoolArray) -> None:
    """Set `may_begin` for the first eight bytes of strings, as little-endian numbers."""
    for beginning in beginnings:
        may_begin[_hash(beginning, mask)] = True


@compiled
def find_strings(
    data: UInt8Array,
    offsets: Int64Array,
    strings: ManyStrings,
    last: Int64Array,
    hits: Int64Array,
    place: Int64Array,
) -> int:
    """Write the occurrences of strings in documents until all are written or `hits` is full.

    Occurrences of one string do not overlap; the first one counts. Those of different strings may.

    Args:
        data: text of documents.
        offsets: shape (num_documents + 1,).
        strings: what to find.
        last: shape (num_strings, 2): for each string, the last document that has it, and where in
            its text it ends; is moved on.
        hits: shape (n, 3): gets where each begins and ends in `data`, and the number of its string.
        place: where to begin in `data`, the index of the document there, the number of document 0
            for `last`, the bytes of its text before `data`, and the bytes of it that were searched
            before; the first two are moved.

    Returns:
        The number of occurrences. All are found if `place` is at the end of `data`.
    """
    nodes, may_begin, mask = strings
    address = data.ctypes.data
    start, document, first_number = place[0], place[1], place[2]
    root, count, room = np.int64(nodes[0, 0]) >> 8, 0, len(hits) - len(last)
    while start < len(data) and count <= room:
        while offsets[document + 1] <= start:
            document += 1
        before = place[3] if document == 0 else np.int64(0)
        searched = place[4] if document == 0 else np.int64(0)
        stop = offsets[document + 1]
        while start < stop and count <= room:
            if (
                start + 8 <= len(data)
                and not may_begin[_hash(eight_bytes_at(address + start), mask)]
            ):
                start += 1
                continue
            base = root
            for i in range(start, stop):
                label = np.int64(data[i])
                node = base ^ label
                if label == NEVER_IN_UTF8 or nodes[node, 0] & 0xFF != label:
                    break
                base = np.int64(nodes[node, 0]) >> 8
                string = nodes[node, 1]
                if string >= 0:
                    from_start = start - offsets[document] + before
                    is_new = last[string, 0] != first_number + document
                    end = i + 1 - offsets[document] + before
                    if end > searched and (is_new or last[string, 1] <= from_start):
                        last[string, 0], last[string, 1] = first_number + document, end
                        hits[count, 0], hits[count, 1], hits[count, 2] = start, i + 1, string
                        count += 1
            start += 1
    place[0], place[1] = start, document
    return count
