"""How few sequences there could be at all."""

from __future__ import annotations

import numpy as np

from tokenmill.records import Int64Array


def least_sequences(histogram: Int64Array, length: int) -> int:
    """Martello and Toth's bound L2 on sequences of `length` tokens, in O(length).

    `histogram` has shape (length + 1,): pieces of each size. For every threshold t, pieces over
    `length` - t need a sequence of their own, so do those over half a sequence, and pieces from t
    up to a half can at most fill what the latter leave. S. Martello, P. Toth: Lower bounds and
    reduction procedures for the bin packing problem, 1990.
    """
    sizes = np.arange(length + 1, dtype=np.int64)
    pieces_up_to = np.cumsum(histogram)
    tokens_up_to = np.cumsum(histogram * sizes)
    half = length // 2
    thresholds = np.arange(half + 1)
    huge = pieces_up_to[length] - pieces_up_to[length - thresholds]
    large = pieces_up_to[length - thresholds] - pieces_up_to[half]
    large_tokens = tokens_up_to[length - thresholds] - tokens_up_to[half]
    before = np.concatenate([[0], tokens_up_to])[thresholds]
    middle_tokens = tokens_up_to[half] - before
    surplus = middle_tokens - (large * length - large_tokens)
    bounds = huge + large + np.maximum(0, -(-surplus // length))
    return int(bounds.max(initial=0))
