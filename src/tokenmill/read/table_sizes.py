"""Sizes of what Parquet and Arrow files hold, without reading all of it."""

from __future__ import annotations

from itertools import islice

from tokenmill.read.columnar import arrow_damage_named, text_bytes
from tokenmill.read.fields import Fields
from tokenmill.read.sources import Source

MAX_BATCHES = 8


def row_group_bytes(source: Source) -> list[int]:
    """Uncompressed bytes of each row group of a Parquet file, all columns together."""
    import pyarrow.parquet as pq

    with arrow_damage_named(source), source.open() as raw:
        metadata = pq.read_metadata(raw)
        return [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]


def record_batch_bytes(source: Source) -> list[int]:
    """Bytes of each record batch of an Arrow file, all columns together."""
    import pyarrow as pa

    with arrow_damage_named(source):
        reader = pa.ipc.open_file(source.path)
        return [reader.get_batch(i).nbytes for i in range(reader.num_record_batches)]


def text_column_bytes(source: Source, fields: Fields) -> int:
    """About how many bytes of text a Parquet or Arrow file holds: of Parquet by its footer, of
    Arrow by some of its record batches.
    """
    sizes_by_format = {
        "parquet": _parquet_text_bytes,
        "arrow-file": _arrow_file_text_bytes,
        "arrow-stream": _arrow_stream_text_bytes,
    }
    with arrow_damage_named(source):
        return sizes_by_format[source.format](source, fields)


def _parquet_text_bytes(source: Source, fields: Fields) -> int:
    import pyarrow.parquet as pq

    with source.open() as raw:
        metadata = pq.read_metadata(raw)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns = [group.column(i) for group in groups for i in range(metadata.num_columns)]
        wanted = [column for column in columns if column.path_in_schema == fields.text]
        return sum(int(column.total_uncompressed_size) for column in wanted)


def _arrow_file_text_bytes(source: Source, fields: Fields) -> int:
    import pyarrow as pa

    with source.open() as raw:
        reader = pa.ipc.open_file(raw)
        count: int = reader.num_record_batches
        looked_at = range(0, count, max(count // MAX_BATCHES, 1))
        size = sum(text_bytes(reader.get_batch(i), fields).nbytes for i in looked_at)
        return round(size * count / max(len(looked_at), 1))


def _arrow_stream_text_bytes(source: Source, fields: Fields) -> int:
    import pyarrow as pa

    with source.open() as raw:
        batches = islice(pa.ipc.open_stream(raw), MAX_BATCHES)
        size = sum(text_bytes(batch, fields).nbytes for batch in batches)
        return round(size * source.num_bytes / max(raw.tell(), 1))
