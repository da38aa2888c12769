"""Reads exported rows back as their users do: a part of a file in memory, nothing trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.load.export.rows import mds
from tokenmill.load.export.rows.layouts import Columns, Lists
from tokenmill.store.exports import MDS_NAMES

if TYPE_CHECKING:
    import pyarrow as pa

TOKENS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive rows of a file."""

    num_rows: int
    read: Callable[[], dict[str, Lists]]
    """Reads its columns, one list each row."""


Reader = Callable[[dict[str, Path], dict[str, str], int], Iterator[Piece]]
"""Yields the rows of a file, or of a file per column, and raises what its library raises.

It is given paths and dtypes by column, and the length of rows. Paths are the same but for npy.
"""


def _npy(paths: dict[str, Path], *_: object) -> Iterator[Piece]:
    yield from _cut({name: np.load(path, "r") for name, path in paths.items()})


def _pt(paths: dict[str, Path], *_: object) -> Iterator[Piece]:
    import torch

    tensors = torch.load(next(iter(paths.values())), weights_only=True, mmap=True)
    yield from _cut({name: tensor.numpy() for name, tensor in tensors.items()})


def _parquet(paths: dict[str, Path], _: dict[str, str], row_length: int) -> Iterator[Piece]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(next(iter(paths.values()))) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            counts = [group.column(place).num_values for place in range(group.num_columns)]
            if max(counts, default=0) > group.num_rows * row_length:  # some kB could be many GB
                raise ValueError(f"its rows have more than {row_length:,} tokens")
            yield Piece(group.num_rows, partial(_group, file, number))


def _datasets(paths: dict[str, Path], *_: object) -> Iterator[Piece]:
    import pyarrow as pa

    with (
        pa.memory_map(str(next(iter(paths.values())))) as source,
        pa.ipc.open_stream(source) as batches,
    ):
        for batch in batches:
            yield Piece(batch.num_rows, partial(_columns, pa.Table.from_batches([batch])))


def _mds(paths: dict[str, Path], dtypes: dict[str, str], row_length: int) -> Iterator[Piece]:
    rows = mds.open_shard(next(iter(paths.values())), mds.row_dtype(dtypes, row_length))
    yield from _cut({name: rows[MDS_NAMES.get(name, name)] for name in paths})


READERS: dict[str, Reader] = {
    "npy": _npy,
    "pt": _pt,
    "parquet": _parquet,
    "datasets": _datasets,
    "mds": _mds,
}
"""By format, like `WRITERS`."""


def _cut(arrays: Columns) -> Iterator[Piece]:
    """Yield the rows of whole columns in pieces."""
    shapes = {values.shape for values in arrays.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2:
        raise ValueError("its columns are not arrays of rows of one length")
    at_once = max(1, TOKENS_AT_ONCE // max(shape[1], 1))
    for first in range(0, shape[0], at_once):
        part = slice(first, min(first + at_once, shape[0]))
        yield Piece(part.stop - first, partial(_sliced, arrays, part))


def _sliced(arrays: Columns, part: slice) -> dict[str, Lists]:
    return {name: Lists.of_rows(values[part]) for name, values in arrays.items()}


def _group(file: Any, number: int) -> dict[str, Lists]:
    return _columns(file.read_row_group(number))


def _columns(table: pa.Table) -> dict[str, Lists]:
    """The columns of a table, which must be lists."""
    import pyarrow.compute as pc

    found = {}
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        if column.null_count:
            raise ValueError(f"{name} has rows without a value")
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        found[name] = Lists.of_lengths(column.flatten().to_numpy(zero_copy_only=False), lengths)
    return found
