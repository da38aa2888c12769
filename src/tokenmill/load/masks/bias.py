"""Distance biases of attention scores: ALiBi and the buckets of T5.

Both depend only on the distance between key and query, which packing does not change inside a
segment. Keys outside the segment are masked, so their bias does not matter.

    query 2 of a segment, keys 0 1 2      k - q          -2  -1   0
                                          ALiBi, slope ½ -1 -½   0
                                          T5 bucket       2   1   0
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.load.masks.grid import Grid


def alibi_slopes(num_heads: int) -> npt.NDArray[np.float32]:
    """Return the slope of each head, shape (num_heads,), for flash-attn's `alibi_slopes`.

    With 2^n heads, head h has the slope 2^(-8 (h + 1) / 2^n). Other numbers of heads get the slopes
    of the next lower power of two, then every other slope of twice as many (arXiv 2108.12409).

    Raises:
        UserError: `num_heads` is less than 1.
    """
    if num_heads < 1:
        raise UserError("num_heads must be at least 1", why=f"got {num_heads}")
    lower = 1 << (num_heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / lower) for head in range(lower)]
    slopes += [2.0 ** (-4.0 * (2 * head + 1) / lower) for head in range(num_heads - lower)]
    return np.array(slopes, np.float32)


def relative_positions(grid: Grid) -> Int32Array:
    """Return key position minus query position, shape (num_queries, row_length), for any row."""
    places = np.arange(grid.row_length, dtype=np.int32)
    return places - places[grid.first_query :, None]


def alibi_bias(grid: Grid, num_heads: int) -> npt.NDArray[np.float32]:
    """Return -slope * |q - k|, shape (1, num_heads, num_queries, row_length).

    Raises:
        UserError: `num_heads` is less than 1.
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
    """Return the relative-position buckets of T5 (arXiv 1910.10683), in the shape of `relative`.

    Half of the buckets hold one distance each. The others hold ranges that grow by a constant
    factor up to `max_distance`. With `bidirectional`, half of all buckets are for keys after the
    query; otherwise these keys are in bucket 0. Like T5, this computes in float32.

    Args:
        relative: key position minus query position.
        num_buckets: number of buckets in the model's table.
        max_distance: all distances from here on share one bucket.
        bidirectional: true for encoders, false for decoders.

    Raises:
        UserError: there are too few buckets.
    """
    exact = num_buckets // (4 if bidirectional else 2)
    if exact < 1 or max_distance <= exact:
        why = f"{num_buckets} buckets up to a distance of {max_distance}"
        raise UserError("too few buckets", why=why)
    each = num_buckets // (2 if bidirectional else 1)
    distances = np.abs(relative) if bidirectional else -np.minimum(relative, 0)
    ratios = np.log(np.maximum(distances, exact).astype(np.float32) / np.float32(exact))
    steps = ratios / np.float32(math.log(max_distance / exact)) * np.float32(each - exact)
    buckets = np.where(distances < exact, distances, exact + steps.astype(np.int64))
    buckets = np.minimum(buckets, each - 1)
    return np.asarray(buckets + each * ((relative > 0) & bidirectional), np.int64)
