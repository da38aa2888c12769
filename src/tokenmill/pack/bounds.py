"""A lower bound on the number of sequences."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array


def least_sequences(histogram: Int64Array, length: int) -> int:
    """Return Martello and Toth's lower bound L2 for sequences of `length` tokens, in O(length).

    `histogram` is the number of pieces of each size, shape (length + 1,). For every threshold t,
    each piece over `length` - t and each piece over half a sequence needs its own sequence. Pieces
    from t to a half can only fill the space that the latter leave. S. Martello, P. Toth: Lower
    bounds and reduction procedures for the bin packing problem, 1990.
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
