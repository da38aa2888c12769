"""Loops that write the text of token ids, as bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.memory import set_eight_bytes

SHORT = 16
"""Bytes of a token that are copied at once, whether or not it has as many."""
NO_TOKEN, NO_TEXT = -1, -2
"""Sizes: an id that the vocabulary lacks; a special token, which has no text."""


class TokenTexts(NamedTuple):
    """The text of every token, and once more as the first one of a document.

    Row i is that of id i, and row num_ids + i that of id i if no text precedes it.
    """

    words: UInt64Array
    """Shape (2 * num_ids, 2): the first `SHORT` bytes."""
    sizes: Int32Array
    """Shape (2 * num_ids,): bytes of the text, `NO_TOKEN` or `NO_TEXT`."""
    starts: Int64Array
    """Shape (2 * num_ids,): where the text begins in `data`."""
    data: UInt8Array

    @property
    def slack(self) -> int:
        """The bytes that must be free before a token is written."""
        return max(int(self.sizes.max(initial=0)), SHORT)


@compiled
def write_texts(
    ids: npt.NDArray[np.integer],
    edges: Int64Array,
    texts: TokenTexts,
    slack: int,
    out: UInt8Array,
    ends: Int64Array,
) -> tuple[int, int]:
    """Write the text of documents, as many as `out` has room for.

    Args:
        ids: token ids of a shard.
        edges: shape (num_documents, 2): the first token of each document, and one past its last.
        texts: the text of every token.
        slack: `texts.slack`.
        out: where to write.
        ends: shape (num_documents,): gets one past the last byte of each document.

    Returns:
        The number of documents written, and the index of a token that the vocabulary lacks, or -1.
    """
    words, sizes, starts, data = texts
    num_ids, address, limit = np.uint64(len(sizes) // 2), out.ctypes.data, len(out) - slack
    filled = 0
    for document in range(len(edges)):
        shift = num_ids  # to the row of the first token with text
        for token in range(edges[document, 0], edges[document, 1]):
            row = np.uint64(ids[token])
            if row >= num_ids:
                return document, token
            row += shift
            size = sizes[row]
            if size == NO_TEXT:
                continue
            if size == NO_TOKEN:
                return document, token
            if filled > limit:
                return document, -1
            if size <= SHORT:
                set_eight_bytes(address + filled, words[row, 0])
                set_eight_bytes(address + filled + 8, words[row, 1])
            else:
                for i in range(size):
                    out[filled + i] = data[starts[row] + i]
            filled += size
            shift = np.uint64(0)
        ends[document] = filled
    return len(edges), -1
