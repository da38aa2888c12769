"""Parquet files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tokenmill.read.compression import damaged
from tokenmill.read.formats.tables.format import TableFormat
from tokenmill.read.formats.tables.messages import BATCHES_PER_DECODE, ReadRows, TableFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokenmill.read.formats.tables.record_batches import Announce

LOCAL_BLOCK_BYTES = 1 << 20


class Parquet(TableFormat):
    """Parquet files: row groups of columns, and a footer with their positions."""

    name = "parquet"
    range_suffixes = (".parquet",)

    def sniff(self, head: bytes, name: Path) -> bool:
        return head.startswith(b"PAR1")

    def open(self, raw: BinaryIO, file: TableFile) -> ParquetTable:
        return ParquetTable(raw, file.block_bytes)


class ParquetTable:
    """An open Parquet file."""

    def __init__(self, raw: BinaryIO, block_bytes: int) -> None:
        import pyarrow.parquet as pq

        self._block_bytes = block_bytes
        self._file = pq.ParquetFile(
            raw,
            buffer_size=block_bytes or LOCAL_BLOCK_BYTES,
            pre_buffer=False,  # it would load the column of a whole row group
            page_checksum_verification=True,
        )

    @property
    def schema(self) -> pa.Schema:
        return self._file.schema_arrow

    @property
    def num_groups(self) -> int:
        count: int = self._file.metadata.num_row_groups
        return count

    def groups(self) -> list[tuple[int, int]]:
        return [
            (group.total_byte_size, group.num_rows) for group in _row_groups(self._file.metadata)
        ]

    def text_bytes(self, column: str) -> int:
        groups = _row_groups(self._file.metadata)
        chunks = [group.column(i) for group in groups for i in range(group.num_columns)]
        wanted = [chunk for chunk in chunks if chunk.path_in_schema == column]
        return sum(int(chunk.total_uncompressed_size) for chunk in wanted)

    def batches(
        self, command: ReadRows, columns: Sequence[str], announce: Announce
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return batches of row groups; announce their byte ranges if the file is remote."""
        metadata = self._file.metadata
        start, stop = command.groups or (0, metadata.num_row_groups)
        if self._block_bytes:
            announce(column_ranges(metadata, range(start, stop), columns))
        counts = [group.num_rows for group in _row_groups(metadata)]
        if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
            why = f"the footer has {metadata.num_rows} rows, but the row groups have {sum(counts)}"
            raise damaged("", why)
        num_bytes = sum(metadata.row_group(i).total_byte_size for i in range(start, stop))
        decoded_bytes = command.batch_bytes * BATCHES_PER_DECODE
        num_rows = sum(counts[start:stop])
        batches = self._file.iter_batches(
            batch_size=max(num_rows * decoded_bytes // max(num_bytes, 1), 1),
            row_groups=range(start, stop),
            columns=columns,
            use_threads=False,
        )
        return sum(counts[:start]), _all_rows(batches, num_rows)


def _row_groups(metadata: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    return [metadata.row_group(i) for i in range(metadata.num_row_groups)]


def _all_rows(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches and check the number of rows: Arrow does not report truncated columns."""
    found = 0
    for batch in batches:
        found += batch.num_rows
        yield batch
    if found != num_rows:
        raise damaged("", f"it should have {num_rows} rows, but has {found}")


def column_ranges(
    metadata: pq.FileMetaData, groups: range, wanted: Sequence[str]
) -> list[list[tuple[int, int]]]:
    """Return the bytes [start, stop) of each wanted column in each row group.

    A column starts with its dictionary page, if it has one (Parquet format, "ColumnMetaData").
    """
    columns: dict[str, list[tuple[int, int]]] = {}
    for group in groups:
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            path = column.path_in_schema
            if any(f"{path}.".startswith(f"{name}.") for name in wanted):
                start = column.dictionary_page_offset or column.data_page_offset
                ranges = columns.setdefault(path, [])
                ranges.append((start, start + column.total_compressed_size))
    return list(columns.values())
