"""Rows in memory, and the columns that come of them.

Two documents of 3 and 2 tokens, and one of padding:

    input_ids      7 8 9 3 4 0        seq_lengths   3 2 1      as TRL's packing gives them
    position_ids   0 1 2 0 1 0        cu_seqlens    0 3 5 6    as FlashAttention takes them
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.rows import REAL, RESTART
from tokenmill.load.rows.segmentation import Segmentation
from tokenmill.run.recipe.tokenizer_section import DEFAULT_COLUMNS, CausalLMConfig, Column

if TYPE_CHECKING:
    from datasets import Features

Int8Array = npt.NDArray[np.int8]

VARIABLE = ("seq_lengths", "cu_seqlens")
"""Columns with one number per segment instead of one per token."""
FIXED_DTYPES = {"attention_mask": "int8", "seq_lengths": "int32", "cu_seqlens": "int32"}


class RowSource(Protocol):
    """Rows that are still to be made."""

    def __len__(self) -> int:
        """The number of rows."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows, without padding."""

    def fill(self, rows: RowColumns, first: int) -> None:
        """Fill `rows` with rows of this source, from number `first` on."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """The columns of rows and their dtypes."""

    context_length: int
    columns: tuple[Column, ...] = DEFAULT_COLUMNS
    dtype: str = "int64"

    @staticmethod
    def of(config: CausalLMConfig) -> RowFormat:
        """The format for a configuration."""
        return RowFormat(config.row_length, config.row_columns, config.dtype)

    def dtype_of(self, column: str) -> str:
        """The dtype of a column."""
        return FIXED_DTYPES.get(column, self.dtype)

    @property
    def token_bytes(self) -> int:
        """Bytes of a token in a row, over all columns."""
        return sum(
            np.dtype(self.dtype_of(name)).itemsize for name in self.columns if name not in VARIABLE
        )

    @property
    def features(self) -> Features:
        """The features as `dataset.map` makes them: lists without a fixed length."""
        from datasets import Features, List, Value

        return Features({name: List(Value(self.dtype_of(name))) for name in self.columns})

    def empty(self, num_rows: int) -> RowColumns:
        """Rows whose values are not set yet."""
        shape, dtype = (num_rows, self.context_length), self.dtype
        return RowColumns(np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, np.uint8))

    def filled(self, source: RowSource) -> RowColumns:
        """All rows of a source."""
        rows = self.empty(len(source))
        source.fill(rows, 0)
        return rows

    def arrays(self, rows: RowColumns) -> dict[str, Any]:
        """The columns as arrays; columns with one number per segment are lists of arrays."""
        made: dict[str, Any] = {}
        for name in self.columns:
            values, offsets = rows.column(name, self.dtype_of(name))
            is_variable, shape = name in VARIABLE, (len(rows), self.context_length)
            made[name] = np.split(values, offsets[1:-1]) if is_variable else values.reshape(shape)
        return made


@dataclass(frozen=True)
class RowColumns:
    """Arrays of shape (num_rows, context_length), to be filled or written."""

    input_ids: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    flags: npt.NDArray[np.uint8]
    """Flags of each token: REAL if it is not padding, RESTART if a segment begins."""

    def __len__(self) -> int:
        return len(self.input_ids)

    def __getitem__(self, part: slice) -> RowColumns:
        return RowColumns(self.input_ids[part], self.labels[part], self.flags[part])

    def fill(self, rows: RowColumns, first: int) -> None:
        """Fill `rows` with these rows, from number `first` on."""
        given = self[first : first + len(rows)]
        rows.input_ids[:], rows.labels[:] = given.input_ids, given.labels
        rows.flags[:] = given.flags

    @property
    def attention_mask(self) -> Int8Array:
        """1 for tokens, 0 for padding."""
        return (self.flags & REAL).view(np.int8)

    @property
    def num_tokens(self) -> int:
        """Tokens without padding."""
        return int(np.count_nonzero(self.flags & REAL))

    @cached_property
    def segmentation(self) -> Segmentation:
        """The segments of the rows. Padding is a segment."""
        return Segmentation.of_flags(self.flags)

    def column(self, name: str, dtype: str) -> tuple[npt.NDArray[Any], Int64Array]:
        """The values of a column over all rows, and the offset of each row."""
        num_rows, length = self.flags.shape
        if name in VARIABLE:
            values, offsets = _OF_SEGMENTS[name](self.segmentation)
        else:
            found = self.segmentation.positions if name == "position_ids" else getattr(self, name)
            values, offsets = found.reshape(-1), np.arange(num_rows + 1) * length
        return values.astype(dtype, copy=False), offsets

    @staticmethod
    def of_arrays(result: Mapping[str, npt.ArrayLike], form: RowFormat) -> RowColumns:
        """Check the result of a user's function and return it as rows.

        Raises:
            UserError: a column is missing, or has another shape.
        """
        names = [*DEFAULT_COLUMNS, *(["position_ids"] if "position_ids" in result else [])]
        given = {name: np.asarray(result[name]) for name in names if name in result}
        shapes = {name: array.shape for name, array in given.items()}
        num_rows = len(given["input_ids"]) if "input_ids" in given else 0
        length = form.context_length
        if len(given) != len(names) or set(shapes.values()) != {(num_rows, length)}:
            raise UserError(
                "_tokenize_function returned columns of the wrong shape",
                why=f"{', '.join(names)} must have the shape (rows, {length}); got {shapes}",
            )
        real = given["attention_mask"] != 0
        if "position_ids" in given:
            begins = given["position_ids"] == 0
        else:
            begins = np.zeros((num_rows, length), np.bool_)
            begins[:, 1:] = real[:, 1:] != real[:, :-1]
        begins[:, :1] = True
        flags = real * REAL | begins * RESTART
        ids, labels = (given[name].astype(form.dtype, copy=False) for name in DEFAULT_COLUMNS[::2])
        return RowColumns(ids, labels, flags)


def _seq_lengths(found: Segmentation) -> tuple[npt.NDArray[Any], Int64Array]:
    counts = np.bincount(found.rows, minlength=found.num_rows)
    return found.lengths, offsets_from_lengths(counts)


def _cu_seqlens(found: Segmentation) -> tuple[npt.NDArray[Any], Int64Array]:
    rows = found.rows
    offsets = offsets_from_lengths(np.bincount(rows, minlength=found.num_rows) + 1)
    values = np.full(int(offsets[-1]), found.row_length, np.int64)
    values[np.arange(len(rows)) + rows] = found.edges[:-1] - rows * found.row_length
    return values, offsets


_OF_SEGMENTS: dict[str, Callable[[Segmentation], tuple[npt.NDArray[Any], Int64Array]]] = {
    "seq_lengths": _seq_lengths,
    "cu_seqlens": _cu_seqlens,
}
