"""A column of token ids in Parquet, Arrow and `datasets.save_to_disk`, one list in each row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.read.formats.tables.isolated import column_names, iter_column
from tokenmill.read.source import Source
from tokenmill.read.tokens.pieces import Ids, Piece, damaged, split_after

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 4 << 20


class IdColumn:
    """The ids of a table; a row is a document, unless documents end after each `eos_id`."""

    is_plain = False
    dtype = None

    def __init__(self, source: Source, column: str, eos_id: int | None) -> None:
        """Take a file, which is read in another process.

        Raises:
            UserError: it has no such column.
            DamagedInputError: the file is damaged.
        """
        self.source, self._column, self._eos_id = source, column, eos_id
        self.num_tokens = source.num_bytes // 2
        self.num_empty = 0
        names = column_names(source, column)
        self.left_out = tuple(f"column {name!r}" for name in names if name != column)

    def pieces(self) -> Iterator[Piece]:
        """Yield the ids of all rows."""
        self.num_empty = 0
        if self._eos_id is not None:
            parts = ((ids, partial(_rows_of, offsets, row)) for ids, offsets, row in self._rows())
            yield from split_after(self._eos_id, parts)
            return
        for ids, offsets, row in self._rows():
            rows = np.flatnonzero(offsets[1:] > offsets[:-1])
            self.num_empty += len(offsets) - 1 - len(rows)
            if len(rows):
                yield Piece(ids, offsets[1:][rows], row + rows)

    def _rows(self) -> Iterator[tuple[Ids, Int64Array, int]]:
        """Yield (ids, where each row begins and the last ends, number of the first row)."""
        for block in iter_column(self.source, self._column, BATCH_BYTES):
            column = block.content.column(0)
            _require_lists(column.type, self.source.where, self._column)
            values = column.flatten()
            if values.null_count:
                why = f"an id of the rows from {block.start} is null"
                raise damaged(self.source.where, why)
            ids: Ids = np.from_dlpack(values)  # type: ignore[assignment]
            yield ids, offsets_from_lengths(_lengths(column)), block.start


def _rows_of(offsets: Int64Array, first_row: int, places: Int64Array) -> Int64Array:
    """Return the rows that ids at some `places` are in, shape (n,)."""
    return first_row + np.searchsorted(offsets, places, side="right") - 1


def _lengths(column: Any) -> Int64Array:
    """Return the ids of each row, shape (n,); 0 for a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.list_value_length(column).cast(pa.int64())
    found: Int64Array = np.from_dlpack(pc.coalesce(lengths, pa.scalar(0, pa.int64())))  # type: ignore[assignment]
    return found


def _require_lists(kind: pa.DataType, where: str, name: str) -> None:
    import pyarrow as pa

    is_list = any(
        getattr(pa.types, f"is_{each}")(kind) for each in ("list", "large_list", "fixed_size_list")
    )
    if not is_list or not pa.types.is_integer(kind.value_type):
        why = f"its type is {kind}, not a list of integers"
        hint = "name the column of ids with --column"
        raise UserError(f"the column {name!r} holds no ids", where=where, why=why, hint=hint)
