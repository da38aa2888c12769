"""The columns of exported rows, their dtypes, and how they follow from rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.load.rows.assembly import IGNORE_INDEX
from tokenmill.load.rows.reader import Rows

Format = Literal["npy", "pt", "parquet", "datasets"]
Column = Literal["input_ids", "labels", "position_ids", "attention_mask"]
DEFAULT_COLUMNS: tuple[Column, ...] = ("input_ids", "labels", "position_ids")
"""No `attention_mask`: beside one, models of transformers do not look at `position_ids`."""
Columns = dict[str, npt.NDArray[Any]]

_DTYPES = {
    "input_ids": "int32",
    "labels": "int32",
    "position_ids": "int32",
    "attention_mask": "int8",
}


def dtype_of(column: str, file_format: str) -> str:
    """The dtype of a column in files of a format."""
    if (column, file_format) == ("labels", "pt"):
        return "int64"  # torch's cross-entropy takes no other targets
    return _DTYPES[column]


def columns_of(rows: Rows, dtypes: dict[str, str]) -> Columns:
    """Arrays of shape (num_rows, row_length) in these dtypes."""
    made: dict[str, npt.NDArray[Any]] = {
        "input_ids": rows.ids,
        "labels": np.where(rows.has_label, rows.labels.astype(np.int32), IGNORE_INDEX),
        "position_ids": rows.segmentation.positions,
        "attention_mask": rows.real,
    }
    return {name: made[name].astype(dtype, copy=False) for name, dtype in dtypes.items()}


def token_bytes(dtypes: dict[str, str]) -> int:
    """Bytes of one token in all columns."""
    return sum(np.dtype(dtype).itemsize for dtype in dtypes.values())
