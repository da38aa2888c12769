"""The columns of exported rows, their dtypes, and how they follow from rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from tokenmill.errors import UserError
from tokenmill.load.rows.assembly import IGNORE_INDEX
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
        dtypes["labels"] = "int64"  # torch's cross-entropy takes no other targets
    if "input_ids" in dtypes and options.dtype is not UNSET:
        dtypes["input_ids"] = options.dtype
    return dtypes


def check_dtype(dataset: Dataset, options: ExportOptions) -> None:
    """Raise a UserError if ids of the tokenizer do not fit the dtype that is asked for."""
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
            why=f"the largest id of its tokenizer is {largest:,}, that of uint16 is 65,535",
            hint="--dtype int32 takes four bytes a token",
        )


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
