"""The columns of exported rows, their dtypes, and how to compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from tokenmill.core.errors import UserError
from tokenmill.load.rows.assembly import IGNORE_INDEX, TARGET
from tokenmill.load.rows.reader import Rows
from tokenmill.store.dataset import Dataset
from tokenmill.store.exports import ExportOptions

Columns = dict[str, npt.NDArray[Any]]

_DTYPES = {
    "input_ids": "int32",
    "labels": "int32",
    "position_ids": "int32",
    "attention_mask": "int8",
}
_LARGEST_UINT16 = (1 << 16) - 1


def dtypes_of(options: ExportOptions) -> dict[str, str]:
    """The dtype of each column."""
    dtypes: dict[str, str] = {name: _DTYPES[name] for name in options.columns}
    if "labels" in dtypes and options.format == "pt":
        dtypes["labels"] = "int64"  # cross-entropy in PyTorch needs int64 targets
    if "input_ids" in dtypes and options.dtype is not UNSET:
        dtypes["input_ids"] = options.dtype
    return dtypes


def check_dtype(dataset: Dataset, options: ExportOptions) -> None:
    """Raise a UserError if the ids of the tokenizer do not fit the requested dtype."""
    if options.dtype is UNSET:
        return
    if "input_ids" not in options.columns:
        raise UserError(
            "--dtype is the dtype of input_ids",
            why=f"the columns are {', '.join(options.columns)}",
            hint="add input_ids to --columns, or leave out --dtype",
        )
    largest = dataset.manifest.tokenizer.largest_id
    if options.dtype == "uint16" and largest > _LARGEST_UINT16:
        raise UserError(
            "the ids do not fit uint16",
            where=dataset.location,
            why=f"the largest id of its tokenizer is {largest:,}, and uint16 ends at 65,535",
            hint="use --dtype int32, which takes four bytes per token",
        )


def empty_columns(dtypes: dict[str, str], num_rows: int, row_length: int) -> Columns:
    """Reusable buffers for rows: arrays of shape (num_rows, row_length)."""
    shape = (num_rows, row_length)
    return {name: np.empty(shape, dtype) for name, dtype in dtypes.items()}


def columns_of(rows: Rows, room: Columns) -> Columns:
    """Write the columns of rows into `room`; returns views of shape (len(rows.ids), row_length)."""
    columns = {name: values[: len(rows.ids)] for name, values in room.items()}
    for name, values in columns.items():
        _FILL[name](rows, values)
    return columns


def _fill_labels(rows: Rows, labels: npt.NDArray[Any]) -> None:
    np.copyto(labels, rows.labels, casting="unsafe")  # a uint32 id is below 2^31
    np.copyto(labels, IGNORE_INDEX, where=(rows.flags & TARGET) == 0)


def _fill_positions(rows: Rows, positions: npt.NDArray[Any]) -> None:
    segmentation = rows.segmentation
    segmentation.count_positions(positions, np.zeros(len(segmentation), np.int64))


_FILL: dict[str, Callable[[Rows, npt.NDArray[Any]], None]] = {
    "input_ids": lambda rows, ids: np.copyto(ids, rows.ids, casting="unsafe"),
    "labels": _fill_labels,
    "position_ids": _fill_positions,
    "attention_mask": lambda rows, mask: np.copyto(mask, rows.real, casting="unsafe"),
}
"""Functions that compute each column."""


def token_bytes(dtypes: dict[str, str]) -> int:
    """Bytes of one token in all columns."""
    return sum(np.dtype(dtype).itemsize for dtype in dtypes.values())
