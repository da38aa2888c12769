"""Arithmetic of lengths, offsets and token boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, TokenBatch

LONG_DOCUMENT_TOKENS = 1_000
"""Average length in tokens from which documents are copied one by one."""


def offsets_from_lengths(lengths: npt.ArrayLike) -> Int64Array:
    """Return the exclusive cumulative sum: lengths [3, 0, 2] give offsets [0, 3, 3, 5]."""
    values = np.asarray(lengths, dtype=np.int64)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=offsets[1:])
    return offsets


def batch_of(documents: Sequence[npt.ArrayLike]) -> TokenBatch:
    """Return a batch from the ids of each document, shape (num_tokens,)."""
    arrays = [np.asarray(ids, np.uint32) for ids in documents]
    ids = np.concatenate([np.empty(0, np.uint32), *arrays])
    return TokenBatch(ids, offsets_from_lengths([len(array) for array in arrays]))


def with_documents(tokens: TokenBatch, places: Sequence[int], others: TokenBatch) -> TokenBatch:
    """Return a batch in which `others` replace the documents at `places`, one each."""
    pieces = np.split(tokens.ids, tokens.offsets[1:-1])
    for place, ids in zip(places, np.split(others.ids, others.offsets[1:-1]), strict=True):
        pieces[place] = ids
    return batch_of(pieces)


def join_batches(parts: Sequence[TokenBatch]) -> TokenBatch:
    """Concatenate batches."""
    if len(parts) == 1:
        return parts[0]
    lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
    ids = np.concatenate([np.empty(0, np.uint32), *(part.ids for part in parts)])
    return TokenBatch(ids, offsets_from_lengths(lengths))


def enclose_documents(
    tokens: TokenBatch, before: Sequence[int], after: Sequence[int], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[np.integer], Int64Array]:
    """Put ids before and after every document, in the dtype of the shard.

    Documents [7 8] [9] with (1,) before and (2,) after give ids [1 7 8 2 1 9 2] and lengths [4, 3].
    """
    count, first, around = len(tokens.offsets) - 1, tokens.offsets[0], len(before) + len(after)
    ids, lengths = tokens.ids[first : tokens.offsets[-1]], tokens.lengths + around
    stops = np.cumsum(lengths)
    ends = [(stops - lengths + place, token) for place, token in enumerate(before)]
    ends += [(stops - len(after) + place, token) for place, token in enumerate(after)]
    enclosed = np.empty(len(ids) + around * count, dtype)
    if len(ids) >= LONG_DOCUMENT_TOKENS * count:
        _copy_each(tokens, stops - len(after) - tokens.lengths, enclosed)
    else:
        is_text = np.ones(len(enclosed), bool)
        for places, _ in ends:
            is_text[places] = False
        enclosed[is_text] = ids
    for places, token in ends:
        enclosed[places] = token
    return enclosed, lengths


def _copy_each(tokens: TokenBatch, starts: Int64Array, enclosed: npt.NDArray[np.integer]) -> None:
    """Copy document i to `starts[i]`; for long documents this is faster than a mask."""
    bounds = pairwise(tokens.offsets.tolist())
    for (start, stop), place in zip(bounds, starts.tolist(), strict=True):
        enclosed[place : place + stop - start] = tokens.ids[start:stop]


def ends_with(tokens: TokenBatch, token_id: int) -> npt.NDArray[np.bool_]:
    """Return whether each document ends with `token_id`, shape (num_documents,)."""
    ended = tokens.lengths > 0
    ended[ended] = tokens.ids[tokens.offsets[1:][ended] - 1] == token_id
    return ended


def without_ends(tokens: TokenBatch, ended: npt.NDArray[np.bool_]) -> TokenBatch:
    """Remove the last id of each document for which `ended`, shape (num_documents,), is true."""
    first, last = int(tokens.offsets[0]), int(tokens.offsets[-1])
    keep = np.ones(last - first, bool)
    keep[tokens.offsets[1:][ended] - 1 - first] = False
    return TokenBatch(tokens.ids[first:last][keep], offsets_from_lengths(tokens.lengths - ended))
