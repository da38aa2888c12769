"""A column of token ids in Parquet, Arrow and `datasets.save_to_disk`, one list in each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.tables.isolated import column_names, iter_rows, one_column
from tokenmill.read.source import Source
from tokenmill.read.tokens.pieces import Piece, TokenFile, damaged, split_after

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 4 << 20


def id_column(source: Source, column: str, eos_id: int | None) -> TokenFile:
    """Return the ids of a table; a row is a document, unless documents end after each `eos_id`.

    Raises:
        UserError: it has no such column.
        DamagedInputError: the file is damaged.
    """

    def pieces() -> Iterator[Piece]:
        rows = _rows(source, column)
        return rows if eos_id is None else split_after(eos_id, rows)

    others = [name for name in column_names(source, column) if name != column]
    return TokenFile(
        source=source,
        num_tokens=source.num_bytes // 2,
        left_out=tuple(f"column {name!r}" for name in others),
        pieces=pieces,
    )


def _rows(source: Source, column: str) -> Iterator[Piece]:
    """Yield the ids of all rows, which another process reads."""
    import pyarrow.compute as pc

    for block in iter_rows(source, one_column(column), Extent(source.index), BATCH_BYTES):
        lists = block.content.column(0)
        _require_lists(lists.type, source.where, column)
        values = lists.flatten()
        if values.null_count:
            raise damaged(source.where, f"an id of the rows from {block.start} is null")
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        ends = offsets_from_lengths(lengths.to_numpy().astype(np.int64))[1:]
        yield Piece(values.to_numpy(), ends, block.start + np.arange(len(ends)))


def _require_lists(kind: pa.DataType, where: str, name: str) -> None:
    import pyarrow as pa

    is_list = any(
        getattr(pa.types, f"is_{each}")(kind) for each in ("list", "large_list", "fixed_size_list")
    )
    if not is_list or not pa.types.is_integer(kind.value_type):
        why = f"its type is {kind}, not a list of integers"
        hint = "name the column of ids with --column"
        raise UserError(f"the column {name!r} holds no ids", where=where, why=why, hint=hint)
