"""Loops that write the text of token ids, as bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.memory import set_eight_bytes

SHORT = 16
"""Bytes of a token that are copied at once, whether or not it has as many."""
NO_TOKEN, NO_TEXT = -1, -2
"""Sizes: an id that the vocabulary lacks; a special token, which has no text."""
DONE, FULL, UNKNOWN = range(3)


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
    place: Int64Array,
) -> int:
    """Write the text of documents until all are written or `out` is full.

    Args:
        ids: token ids of a shard.
        edges: shape (num_documents, 2): the first token of each document, and one past its last.
        texts: the text of every token.
        slack: `texts.slack`.
        out: where to write.
        ends: shape (num_documents,): gets one past the last byte of each finished document.
        place: the document, its next token (-1: its first) and the bytes written; is moved.

    Returns:
        `DONE`, `FULL`, or `UNKNOWN` if the token at `place` is not in the vocabulary.
    """
    num_ids, limit = len(texts.sizes) // 2, len(out) - slack
    document, token, filled = place[0], place[1], place[2]
    status = DONE
    while document < len(edges) and status == DONE:
        is_new = token < 0
        start = edges[document, 0] if is_new else token
        first = num_ids if is_new else 0
        status, token, filled = _write_tokens(
            ids, start, edges[document, 1], first, texts, limit, out, filled
        )
        if status == DONE:
            ends[document] = filled
            document += 1
            token = -1
    place[0], place[1], place[2] = document, token, filled
    return status


@inner
def _write_tokens(
    ids: npt.NDArray[np.integer],
    token: int,
    stop: int,
    first: int,
    texts: TokenTexts,
    limit: int,
    out: UInt8Array,
    filled: int,
) -> tuple[int, int, int]:
    """Write the text of some tokens; return the status, the next token and the bytes written.

    `first` is what to add to the row of the first token with text. The next token is -1 if that one
    does not fit.
    """
    words, sizes, starts, data = texts
    num_ids, address = np.uint64(len(sizes) // 2), out.ctypes.data
    shift = np.uint64(first)
    while token < stop:
        row = np.uint64(ids[token])
        if row >= num_ids:
            return UNKNOWN, token, filled
        row += shift
        size = sizes[row]
        if np.uint32(size) <= np.uint32(SHORT):
            if filled > limit:
                return FULL, -1 if shift else token, filled
            set_eight_bytes(address + filled, words[row, 0])
            set_eight_bytes(address + filled + 8, words[row, 1])
            shift = np.uint64(0)
        elif size > 0:
            if filled > limit:
                return FULL, -1 if shift else token, filled
            for i in range(size):
                out[filled + i] = data[starts[row] + i]
            shift = np.uint64(0)
        elif size == NO_TOKEN:
            return UNKNOWN, token, filled
        filled += max(size, 0)
        token += 1
    return DONE, token, filled
