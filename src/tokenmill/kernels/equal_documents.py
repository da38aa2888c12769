"""A loop that compares documents, token by token."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.kernels.byte_strings import equal_bytes
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.memory import eight_bytes_at, int32_at

OUTSIDE = -1


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
