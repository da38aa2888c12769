"""Biases of scores by distance, which packing does not change: ALiBi and T5's buckets.

Both depend on how far a key is from its query, and inside a segment that is the same whether the
segment stands alone or packed. Outside it a mask hides the key, and the bias does not matter.

    query 2 of a segment, keys 0 1 2      k - q          -2  -1   0
                                          ALiBi, slope ½ -1 -½   0
                                          T5 bucket       2   1   0
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UserError
from tokenmill.load.masks.grid import Grid
from tokenmill.records import Int32Array, Int64Array


def alibi_slopes(num_heads: int) -> npt.NDArray[np.float32]:
    """Slope of each head, shape (num_heads,), as flash-attn's `alibi_slopes` (arXiv 2108.12409).

    Of 2^n heads, head h has 2^(-8 (h + 1) / 2^n). Other numbers take those of the next lower power
    of two, then every other one of twice as many heads.

    Raises:
        UserError: there are no heads.
    """
    if num_heads < 1:
        raise UserError("there are no heads", why=f"num_heads is {num_heads}")
    lower = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / lower) for head in range(lower)]
    slopes += [2.0 ** (-4.0 * (2 * head + 1) / lower) for head in range(num_heads - lower)]
    return np.array(slopes, np.float32)


def relative_positions(grid: Grid) -> Int32Array:
    """Key's place minus query's, shape (num_queries, row_length): the same for all rows."""
    places = np.arange(grid.row_length, dtype=np.int32)
    return places - places[grid.first_query :, None]


def alibi_bias(grid: Grid, num_heads: int) -> npt.NDArray[np.float32]:
    """-slope * |q - k|, shape (1, num_heads, num_queries, row_length).

    Raises:
        UserError: there are no heads.
    """
    distances = np.abs(relative_positions(grid)).astype(np.float32)
    return (-alibi_slopes(num_heads)[:, None, None] * distances)[None]


def t5_buckets(
    relative: npt.NDArray[np.integer],
    num_buckets: int = 32,
    max_distance: int = 128,
    *,
    bidirectional: bool = True,
) -> Int64Array:
    """Relative-position buckets of T5 (arXiv 1910.10683), of the shape of `relative`.

    Half of the buckets are for one distance each, the rest for distances that grow by a constant
    factor up to `max_distance`. With `bidirectional` half of all are for keys after the query;
    without it those fall into bucket 0. Computed in float32, as T5 does.

    Args:
        relative: key's position minus query's.
        num_buckets: of the model's table.
        max_distance: from here on there is one bucket.
        bidirectional: true in encoders, false in decoders.

    Raises:
        UserError: there are too few buckets.
    """
    exact = num_buckets // (4 if bidirectional else 2)
    if exact < 1 or max_distance <= exact:
        why = f"{num_buckets} buckets up to a distance of {max_distance}"
        raise UserError("distances do not fit their buckets", why=why)
    each = num_buckets // (2 if bidirectional else 1)
    distances = np.abs(relative) if bidirectional else -np.minimum(relative, 0)
    ratios = np.log(np.maximum(distances, exact).astype(np.float32) / np.float32(exact))
    steps = ratios / np.float32(math.log(max_distance / exact)) * np.float32(each - exact)
    buckets = np.where(distances < exact, distances, exact + steps.astype(np.int64))
    buckets = np.minimum(buckets, each - 1)
    return np.asarray(buckets + each * ((relative > 0) & bidirectional), np.int64)
