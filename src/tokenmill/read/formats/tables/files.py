"""Parquet and Arrow files from outside: for the parsing process alone, which they may crash.

Arrow trusts the lengths and offsets in a file. An offset behind its buffer gives whatever the
memory holds there, so nothing looks at a record batch before `validated`. Errors name no file: the
process that asked knows which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tokenmill.errors import UserError
from tokenmill.read.compression import damaged
from tokenmill.read.formats.tables.messages import BATCHES_PER_DECODE, ReadRows, TableFile

MAX_SAMPLED_BATCHES = 8
LOCAL_BLOCK_BYTES = 1 << 20
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

Announce = Callable[[list[list[tuple[int, int]]]], None]


def check_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raise a UserError if a column is missing, or if the first does not hold strings."""
    for name in columns:
        kind: pa.DataType = pa.struct(list(schema))
        for key in name.split("."):
            if not pa.types.is_struct(kind) or kind.get_field_index(key) < 0:
                raise UserError(
                    f"there is no column {name!r}",
                    why=f"the columns are {', '.join(schema.names)}",
                    hint="name the right one with --text-field, --id-field, --keep or --no-loss",
                )
            kind = kind.field(key).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if name == columns[0] and not (_is_stringlike(kind) or pa.types.is_null(kind)):
            why = f"its type is {kind}, not a string"
            raise UserError(f"column {name!r} holds no text", why=why)


def schema_of(raw: BinaryIO, file: TableFile) -> pa.Schema:
    """The schema of a file."""
    if file.format == "parquet":
        return pq.read_schema(raw)
    open_arrow = pa.ipc.open_file if file.format == "arrow-file" else pa.ipc.open_stream
    return open_arrow(raw).schema


def group_sizes(raw: BinaryIO, file: TableFile) -> list[int]:
    """Bytes of each row group (Parquet) or record batch (Arrow file), all columns together."""
    if file.format == "parquet":
        metadata = pq.read_metadata(raw)
        return [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    reader = pa.ipc.open_file(raw)
    return [validated(reader.get_batch(i)).nbytes for i in range(reader.num_record_batches)]


def text_size(raw: BinaryIO, file: TableFile, column: str) -> int:
    """About how many bytes of text a file holds: of Parquet by its footer, of Arrow by some of its
    record batches.
    """
    if file.format == "parquet":
        metadata = pq.read_metadata(raw)
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        chunks = [group.column(i) for group in groups for i in range(metadata.num_columns)]
        wanted = [chunk for chunk in chunks if chunk.path_in_schema == column]
        return sum(int(chunk.total_uncompressed_size) for chunk in wanted)
    if file.format == "arrow-file":
        reader = pa.ipc.open_file(raw)
        count: int = reader.num_record_batches
        looked_at = range(0, count, max(count // MAX_SAMPLED_BATCHES, 1))
        size = sum(_text_bytes(reader.get_batch(i), column) for i in looked_at)
        return round(size * count / max(len(looked_at), 1))
    batches = islice(pa.ipc.open_stream(raw), MAX_SAMPLED_BATCHES)
    size = sum(_text_bytes(batch, column) for batch in batches)
    return round(size * file.num_bytes / max(raw.tell(), 1))


def _text_bytes(batch: pa.RecordBatch, column: str) -> int:
    texts = _column(validated(batch), column).cast(pa.large_binary())
    return pc.sum(pc.binary_length(texts)).as_py() or 0


def iter_rows(
    raw: BinaryIO, command: ReadRows, announce: Announce
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (first row, bytes in the file, wanted columns) for slices of about `batch_bytes`."""
    file = command.file
    if file.format == "parquet":
        row, batches = _parquet_batches(raw, command, announce)
    elif file.format == "arrow-file":
        reader = pa.ipc.open_file(raw)
        check_columns(reader.schema, command.columns)
        start, stop = command.groups or (0, reader.num_record_batches)
        row = sum(validated(reader.get_batch(i)).num_rows for i in range(start))
        batches = (reader.get_batch(i) for i in range(start, stop))
    else:
        row, batches = 0, _stream_batches(raw, command)
    for batch in map(validated, batches):
        for piece in sliced(batch, command.batch_bytes):
            columns = {name: _column(piece, name) for name in dict.fromkeys(command.columns)}
            yield row, piece.nbytes, pa.record_batch(columns)
            row += piece.num_rows


def _parquet_batches(
    raw: BinaryIO, command: ReadRows, announce: Announce
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The first row of some row groups, and the record batches of all their rows."""
    file = pq.ParquetFile(
        raw,
        buffer_size=command.block_bytes or LOCAL_BLOCK_BYTES,
        pre_buffer=False,  # it would hold the column of a whole row group
        page_checksum_verification=True,
    )
    check_columns(file.schema_arrow, command.columns)
    metadata = file.metadata
    start, stop = command.groups or (0, metadata.num_row_groups)
    if command.block_bytes:
        announce(column_ranges(metadata, range(start, stop), command.columns))
    counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        why = f"{metadata.num_rows} rows, with {sum(counts)} in its row groups"
        raise damaged("", why)
    num_bytes = sum(metadata.row_group(i).total_byte_size for i in range(start, stop))
    decoded_bytes = command.batch_bytes * BATCHES_PER_DECODE
    num_rows = sum(counts[start:stop])
    batches = file.iter_batches(
        batch_size=max(num_rows * decoded_bytes // max(num_bytes, 1), 1),
        row_groups=range(start, stop),
        columns=command.columns,
        use_threads=False,
    )
    return sum(counts[:start]), _all_rows(batches, num_rows)


def _all_rows(batches: Iterator[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
    """The same batches, which must have so many rows: columns may end early without an error."""
    found = 0
    for batch in batches:
        found += batch.num_rows
        yield batch
    if found != num_rows:
        raise damaged("", f"it should have {num_rows} rows, and has {found}")


def column_ranges(
    metadata: pq.FileMetaData, groups: range, wanted: Sequence[str]
) -> list[list[tuple[int, int]]]:
    """The bytes [start, stop) of each wanted column in each row group.

    Parquet format, "ColumnMetaData": a column begins with its dictionary page where it has one.
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


def _stream_batches(raw: BinaryIO, command: ReadRows) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream, which must end with its end mark and nothing after it.

    Without the mark, a file that was cut off between two batches would look whole.
    """
    reader = pa.ipc.open_stream(raw)
    check_columns(reader.schema, command.columns)
    yield from reader
    raw.seek(raw.tell() - len(_END_OF_STREAM))
    if raw.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
        raise damaged("", "the Arrow stream is cut off: it has no end mark")
    if raw.read(1):
        raise damaged("", "something follows the end of the Arrow stream")


def validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A record batch whose lengths, offsets and indices all lie inside its buffers.

    Strings are looked at as bytes: one that is not UTF-8 costs its row, not the file.

    Raises:
        pa.ArrowInvalid: one does not.
    """
    batch.validate()
    for column in batch.columns:
        column.view(_with_bytes(column.type)).validate(full=True)
    return batch


def _with_bytes(kind: pa.DataType) -> pa.DataType:
    """A type of the same layout with bytes in the place of strings."""
    types = pa.types
    if types.is_string(kind):
        return pa.binary()
    if types.is_large_string(kind):
        return pa.large_binary()
    if types.is_string_view(kind):
        return pa.binary_view()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_with_bytes(field.type)) for field in kind])
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _with_bytes(kind.value_type), kind.ordered)
    if types.is_map(kind):
        return pa.map_(_with_bytes(kind.key_type), _with_bytes(kind.item_type), kind.keys_sorted)
    if types.is_list(kind):
        return pa.list_(_field_with_bytes(kind))
    if types.is_large_list(kind):
        return pa.large_list(_field_with_bytes(kind))
    if types.is_fixed_size_list(kind):
        return pa.list_(_field_with_bytes(kind), kind.list_size)
    return kind


def _field_with_bytes(kind: pa.DataType) -> pa.Field:
    return kind.value_field.with_type(_with_bytes(kind.value_type))


def sliced(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """A record batch in slices of about `batch_bytes`."""
    rows = max(batch.num_rows * batch_bytes // max(batch.nbytes, 1), 1)
    return (batch.slice(row, rows) for row in range(0, batch.num_rows, rows))


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """A column by its name or dotted path, in a type that Python has values for."""
    first, *rest = name.split(".")
    column = batch.column(first)
    column = pc.struct_field(column, rest) if rest else column
    kind = column.type
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return column.cast(pa.string())  # Python's own types would lose nanoseconds
    if pa.types.is_dictionary(kind):
        values = _without_view(column.dictionary)  # Arrow cannot decode a dictionary of views
        return pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
    return _without_view(column)


def _without_view(column: pa.Array) -> pa.Array:
    """Strings one after another: a slice of a view would be sent with the strings of all rows."""
    if pa.types.is_string_view(column.type):
        return column.view(pa.binary_view()).cast(pa.large_binary()).view(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _is_stringlike(kind: pa.DataType) -> bool:
    tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in tests)
