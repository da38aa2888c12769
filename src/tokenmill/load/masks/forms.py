"""Dense forms of a mask, in numpy: bool, multiplicative, additive, and Megatron's inverted one.

A causal row of two segments, 2 and 1 tokens:

    dense    1 . .      multiplicative  1 0 0      additive  0 -inf -inf      inverted  . 1 1
             1 1 .                      1 1 0                0   0  -inf                . . 1
             . . 1                      0 0 1              -inf -inf  0                 1 1 .
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UserError
from tokenmill.load.masks.definition import Mask, Tokens, visible, with_tables
from tokenmill.load.masks.grid import Grid
from tokenmill.load.rows.segmentation import BoolArray


def dense(mask: Mask, grid: Grid) -> BoolArray:
    """True where a query sees a key, shape (num_rows, num_queries, row_length).

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    grid.check(mask)
    mask = with_tables(mask, grid.segmentation.max_length, np.asarray)
    first, length = grid.first_query, grid.row_length
    result = np.empty((grid.num_rows, length - first, length), np.bool_)
    for row in range(grid.num_rows):
        q = _sliced(grid.keys, (row, slice(first, None), None))
        k = _sliced(grid.keys, (row, None, slice(None)))
        result[row] = visible(mask, q, k)
    return result


def inverted(mask: Mask, grid: Grid) -> BoolArray:
    """True where a key is masked, shape (num_rows, 1, num_queries, row_length).

    Megatron's `attention_mask`, the opposite of what SDPA takes.

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    return ~dense(mask, grid)[:, None]


def multiplicative(mask: Mask, grid: Grid, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """1 where a query sees a key and 0 elsewhere, of the shape of `dense`.

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    return dense(mask, grid).astype(dtype)


def additive(
    mask: Mask, grid: Grid, dtype: npt.DTypeLike = np.float32, value: float = -np.inf
) -> npt.NDArray[np.floating]:
    """0 where a query sees a key and `value` elsewhere, of the shape of `dense`.

    Added to scores before the softmax. No row of it is all `value`, so minus infinity gives no NaN.

    Raises:
        UserError: `value` is no negative number of that dtype (-1e9 is none of float16), or the
            grid lacks what the mask needs.
    """
    with np.errstate(over="ignore"):
        hidden = np.asarray(value, dtype)
    check_additive(value, float(hidden), str(np.dtype(dtype)))
    return np.where(dense(mask, grid), np.zeros((), dtype), hidden)


def check_additive(value: float, stored: float, dtype: str) -> None:
    """Whether a value that hides keys survives its dtype.

    Raises:
        UserError: it does not, or hides nothing.
    """
    if not value < 0 or np.isinf(stored) != np.isinf(value):
        why = f"{value} is {stored} in {dtype}"
        hint = "minus infinity always does; or the lowest finite number of the dtype"
        raise UserError("an additive mask cannot hide keys with this value", why=why, hint=hint)


def padding_mask(grid: Grid) -> npt.NDArray[np.int64]:
    """Hugging Face's 2-D `attention_mask`: 1 for tokens, 0 for padding, of (num_rows, row_length).

    Raises:
        UserError: a row holds two segments or more, which this form would join.
    """
    rows = grid.segmentation.rows[~grid.segmentation.is_padding]
    if (np.bincount(rows, minlength=1) > 1).any():
        row = int(np.argmax(np.bincount(rows) > 1))
        raise UserError(
            "a 2-D attention_mask cannot keep segments apart",
            where=f"row {row}",
            why="it knows tokens and padding only",
            hint="position_ids without an attention_mask, or a 4-D mask",
        )
    return (grid.segmentation.ids >= 0).astype(np.int64)


def _sliced(tokens: Tokens, at: Any) -> Tokens:
    values = (getattr(tokens, field.name) for field in fields(tokens))
    return Tokens(*(None if value is None else value[at] for value in values))
