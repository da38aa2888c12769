"""The columns of exported rows, their dtypes, and how they follow from rows."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import compiled
from tokenmill.load.rows.assembly import REAL, RESTART, TARGET
from tokenmill.load.rows.reader import IGNORE_INDEX, Rows

Format = Literal["npy", "pt", "parquet", "datasets"]
Column = Literal["input_ids", "labels", "position_ids", "attention_mask"]
DEFAULT_COLUMNS: tuple[Column, ...] = ("input_ids", "labels", "position_ids")
"""No `attention_mask`: beside one, models of transformers do not look at `position_ids`."""
Columns = dict[str, npt.NDArray[Any]]

_INT32 = {
    "input_ids": "int32",
    "labels": "int32",
    "position_ids": "int32",
    "attention_mask": "int8",
}
DTYPES: dict[str, dict[str, str]] = {
    "npy": _INT32,
    # torch's cross-entropy takes int64 targets only.
    "pt": {**_INT32, "labels": "int64"},
    # `datasets` makes int64 tensors of all integers when it is asked for tensors.
    "parquet": _INT32,
    "datasets": _INT32,
}


def columns_of(rows: Rows, dtypes: dict[str, str]) -> Columns:
    """Arrays of shape (num_rows, row_length) in these dtypes."""
    columns = {
        name: np.empty(rows.ids.shape, dtypes.get(name, dtype)) for name, dtype in _INT32.items()
    }
    _expand((rows.ids, rows.labels, rows.flags), tuple(columns.values()))
    return {name: columns[name] for name in dtypes}


def token_bytes(dtypes: dict[str, str]) -> int:
    """Bytes of one token in all columns."""
    return sum(np.dtype(dtype).itemsize for dtype in dtypes.values())


@compiled
def _expand(rows: tuple[Any, Any, npt.NDArray[np.uint8]], columns: tuple[Any, ...]) -> None:
    ids, labels, flags = rows
    input_ids, out_labels, position_ids, attention_mask = columns
    for i in range(ids.shape[0]):
        position = 0
        for j in range(ids.shape[1]):
            flag = flags[i, j]
            if flag & RESTART:
                position = 0
            input_ids[i, j] = ids[i, j]
            out_labels[i, j] = labels[i, j] if flag & TARGET else IGNORE_INDEX
            position_ids[i, j] = position
            attention_mask[i, j] = flag & REAL
            position += 1
