"""Dense masks as NumPy arrays: bool, multiplicative, additive, and Megatron's inverted form.

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

from tokenmill.core.errors import UserError
from tokenmill.core.records import BoolArray
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.rules import Mask, Tokens, visible, with_tables


def dense(mask: Mask, grid: Grid) -> BoolArray:
    """Return True where a query attends to a key, shape (num_rows, num_queries, row_length).

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
    """Return True where a key is masked, shape (num_rows, 1, num_queries, row_length).

    This is Megatron's `attention_mask`, the opposite of the mask of SDPA.

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    return ~dense(mask, grid)[:, None]


def multiplicative(mask: Mask, grid: Grid, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """Return 1 where a query attends to a key and 0 elsewhere, in the shape of `dense`.

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    return dense(mask, grid).astype(dtype)


def additive(
    mask: Mask, grid: Grid, dtype: npt.DTypeLike = np.float32, value: float = -np.inf
) -> npt.NDArray[np.floating]:
    """Return 0 where a query attends to a key and `value` elsewhere, in the shape of `dense`.

    Add it to the scores before the softmax. Minus infinity is safe: each query attends to itself,
    so no softmax is empty.

    Raises:
        UserError: `value` is not a negative number of that dtype (float16 cannot hold -1e9), or the
            grid lacks what the mask needs.
    """
    with np.errstate(over="ignore"):
        hidden = np.asarray(value, dtype)
    check_additive(value, float(hidden), str(np.dtype(dtype)))
    return np.where(dense(mask, grid), np.zeros((), dtype), hidden)


def check_additive(value: float, stored: float, dtype: str) -> None:
    """Check that a dtype can hold a value that hides keys.

    Raises:
        UserError: it cannot, or the value is not negative.
    """
    if not value < 0 or np.isinf(stored) != np.isinf(value):
        why = f"it must be negative and fit in the dtype; {value} is {stored} in {dtype}"
        hint = "use minus infinity, or the lowest finite number of the dtype"
        raise UserError("invalid value for an additive mask", why=why, hint=hint)


def padding_mask(grid: Grid) -> npt.NDArray[np.int64]:
    """Return a 2-D `attention_mask` for Hugging Face, shape (num_rows, row_length).

    It is 1 for tokens and 0 for padding.

    Raises:
        UserError: a row has several segments, which this form would join.
    """
    rows = grid.segmentation.rows[~grid.segmentation.is_padding]
    if (np.bincount(rows, minlength=1) > 1).any():
        row = int(np.argmax(np.bincount(rows) > 1))
        raise UserError(
            "a 2-D attention_mask cannot keep segments apart",
            where=f"row {row}",
            why="it only separates tokens from padding, and the row has several segments",
            hint="pass position_ids without an attention_mask, or a 4-D mask",
        )
    return (grid.segmentation.ids >= 0).astype(np.int64)


def _sliced(tokens: Tokens, at: Any) -> Tokens:
    values = (getattr(tokens, field.name) for field in fields(tokens))
    return Tokens(*(None if value is None else value[at] for value in values))
