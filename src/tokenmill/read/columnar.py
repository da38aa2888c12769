"""Parquet and Arrow IPC: record batches to document batches, with the same fates as JSON Lines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np

from tokenmill.errors import TokenmillError, UserError
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields, char_spans, column_value
from tokenmill.read.hub.access import BLOCK_BYTES
from tokenmill.records import DocumentBatch, Int64Array, Rejection

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokenmill.read.hub.remote_file import RemoteFile
    from tokenmill.read.sources import Source

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


BATCHES_PER_DECODE = 8
"""Parquet has a price for every call, so several batches are decoded at once and then sliced."""


def schema_of(source: Source) -> pa.Schema:
    """The schema of a Parquet or Arrow file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with arrow_damage_named(source), source.open() as raw:
        if source.format == "parquet":
            return pq.read_schema(raw)
        open_arrow = pa.ipc.open_file if source.format == "arrow-file" else pa.ipc.open_stream
        return open_arrow(raw).schema


def check_schema(source: Source, fields: Fields) -> None:
    """Raise a UserError where a field is missing, or the text is not a column of strings."""
    _check_columns(schema_of(source), source, fields)


def _check_columns(schema: pa.Schema, source: Source, fields: Fields) -> None:
    import pyarrow as pa

    for name in (fields.text, *fields.extra):
        kind: pa.DataType = pa.struct(list(schema))
        for key in name.split("."):
            if not pa.types.is_struct(kind) or kind.get_field_index(key) < 0:
                raise UserError(
                    f"there is no column {name!r}",
                    where=source.where,
                    why=f"the columns are {', '.join(schema.names)}",
                    hint="name the right one with --text-field, --id-field, --keep or --no-loss",
                )
            kind = kind.field(key).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if name == fields.text and not (_is_stringlike(kind) or pa.types.is_null(kind)):
            why = f"its type is {kind}, not a string"
            raise UserError(f"column {name!r} holds no text", where=source.where, why=why)


def iter_record_batches(
    source: Source,
    fields: Fields,
    groups: range | None,
    batch_bytes: int,
    raw: BinaryIO | None = None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (first row, record batch) of some row groups (Parquet) or batches (Arrow file).

    `raw` is the opened file, for a caller that wants to know how far it was read.
    """
    import pyarrow as pa

    with contextlib.ExitStack() as opened, arrow_damage_named(source):
        if raw is None and source.streamed:
            raw = opened.enter_context(source.open())
        if source.format == "parquet":
            row, batches = _parquet_batches(source, fields, groups, batch_bytes, raw)
        elif source.format == "arrow-file":
            reader = pa.ipc.open_file(raw or source.path)
            _check_columns(reader.schema, source, fields)
            groups = range(reader.num_record_batches) if groups is None else groups
            row = sum(reader.get_batch(i).num_rows for i in range(groups.start))
            batches = (reader.get_batch(i) for i in groups)
        else:
            stream = raw or pa.OSFile(str(source.path))
            row, batches = 0, _stream_batches(stream, source, fields)
        for batch in batches:
            for piece in _sliced(batch, batch_bytes):
                yield row, piece
                row += piece.num_rows


def _parquet_batches(
    source: Source,
    fields: Fields,
    groups: range | None,
    batch_bytes: int,
    raw: BinaryIO | None,
) -> tuple[int, Iterator[pa.RecordBatch]]:
    """The first row of some row groups, and the record batches of all their rows."""
    import pyarrow.parquet as pq

    decoded_bytes = batch_bytes * BATCHES_PER_DECODE
    # 0: a column of a row group in one read. Who wants little of a distant file fetches little.
    block_bytes = min(decoded_bytes, BLOCK_BYTES) if source.streamed else 0
    file = pq.ParquetFile(
        raw or source.path, buffer_size=block_bytes, pre_buffer=not source.streamed
    )
    _check_columns(file.schema_arrow, source, fields)
    metadata = file.metadata
    groups = range(metadata.num_row_groups) if groups is None else groups
    if source.streamed:
        cast("RemoteFile", raw).read_ahead(column_ranges(metadata, groups, fields), block_bytes)
    counts = [metadata.row_group(i).num_rows for i in range(groups.stop)]
    num_bytes = sum(metadata.row_group(i).total_byte_size for i in groups)
    rows = max(sum(counts[groups.start :]) * decoded_bytes // max(num_bytes, 1), 1)
    batches = file.iter_batches(
        batch_size=rows,
        row_groups=groups,
        columns=[fields.text, *fields.extra],
        use_threads=False,
    )
    return sum(counts[: groups.start]), batches


def column_ranges(
    metadata: pq.FileMetaData, groups: range, fields: Fields
) -> list[list[tuple[int, int]]]:
    """The bytes [start, stop) of each wanted column in each row group.

    Parquet format, "ColumnMetaData": a column begins with its dictionary page where it has one.
    """
    wanted = (fields.text, *fields.extra)
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


def _stream_batches(
    file: BinaryIO | pa.NativeFile, source: Source, fields: Fields
) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream, which must end with its end mark and nothing after it.

    Without the mark, a file that was cut off between two batches would look whole.
    """
    import pyarrow as pa

    reader = pa.ipc.open_stream(file)
    _check_columns(reader.schema, source, fields)
    yield from reader
    file.seek(file.tell() - len(_END_OF_STREAM))
    if file.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
        raise damaged(source.where, "the Arrow stream is cut off: it has no end mark")
    if file.read(1):
        raise damaged(source.where, "something follows the end of the Arrow stream")


def parse_record_batch(
    batch: pa.RecordBatch, first_row: int, source: Source, fields: Fields
) -> DocumentBatch:
    """The documents of a record batch; null, undecodable and mistyped rows are set aside."""
    texts, reasons = _texts(_column(batch, fields.text))
    extra = {name: _values(name, _column(batch, name), reasons) for name in fields.extra}
    spans = None
    if fields.no_loss:
        spans = []
        for row, value in enumerate(extra[fields.no_loss]):
            try:
                spans.append(char_spans(value))
            except ValueError as error:
                spans.append([])
                reasons.setdefault(row, ("invalid-spans", str(error), b""))
    sizes = text_sizes(texts)
    rejected = [
        _rejection(source.index, first_row + row, reasons[row], texts[row])
        for row in sorted(reasons)
    ]
    documents = DocumentBatch(
        source.index,
        texts,
        positions=np.arange(first_row, first_row + len(texts), dtype=np.int64),
        record_bytes=sizes,
        ids=[column_value(value) for value in extra[fields.id]] if fields.id else None,
        columns={name: [column_value(v) for v in extra[name]] for name in fields.keep},
        no_loss=spans,
    )
    if reasons:
        keep = np.ones(len(texts), dtype=bool)
        keep[list(reasons)] = False
        documents = documents.select(keep)
        documents.rejected = rejected
    return documents


def _rejection(source: int, row: int, found: tuple[str, str, bytes], text: str) -> Rejection:
    """A row set aside, with the bytes of its text, as found where they are not UTF-8."""
    reason, detail, record = found
    record = record or text.encode()
    return Rejection(source, row, len(record), reason, detail, record)


def _values(
    name: str, column: pa.Array, reasons: dict[int, tuple[str, str, bytes]]
) -> list[object]:
    """The values of a column; a row with a string that is not UTF-8 gets a reason."""
    try:
        values: list[object] = column.to_pylist()
        return values
    except UnicodeDecodeError:
        values = []
    for row, value in enumerate(column):
        try:
            values.append(value.as_py())
        except UnicodeDecodeError as error:
            values.append(None)
            detail = f"{error.reason} at byte {error.start} of {name!r}"
            reasons.setdefault(row, ("invalid-utf8", detail, b""))
    return values


def _texts(column: pa.Array) -> tuple[list[str], dict[int, tuple[str, str, bytes]]]:
    """The strings of a column, "" where there is none, and why there is none."""
    import pyarrow as pa

    reasons: dict[int, tuple[str, str, bytes]] = {}
    try:
        values = column.to_pylist() if not _is_binary(column.type) else None
        if values is not None and not column.null_count:
            return values, reasons
    except UnicodeDecodeError:
        values = None
    if values is None:
        values = column.cast(pa.large_binary()).to_pylist()
    for row, value in enumerate(values):
        if value is None:
            reasons[row] = ("null-text", "the text is null", b"")
        elif isinstance(value, bytes):
            try:
                values[row] = value.decode()
                continue
            except UnicodeDecodeError as error:
                detail = f"{error.reason} at byte {error.start} of the text"
                reasons[row] = ("invalid-utf8", detail, value)
        else:
            continue
        values[row] = ""
    return values, reasons


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    first, *rest = name.split(".")
    column = batch.column(first)
    column = pc.struct_field(column, rest) if rest else column
    if pa.types.is_duration(column.type):
        return column.cast(pa.int64())
    if pa.types.is_temporal(column.type):
        return column.cast(pa.string())  # Python's own types would lose nanoseconds
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _sliced(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    rows = max(batch.num_rows * batch_bytes // max(batch.nbytes, 1), 1)
    return (batch.slice(row, rows) for row in range(0, batch.num_rows, rows))


def text_sizes(texts: Sequence[str]) -> Int64Array:
    """Shape (n,): bytes of each text in UTF-8."""
    sizes = (len(text) if text.isascii() else len(text.encode()) for text in texts)
    return np.fromiter(sizes, np.int64, len(texts))


def text_bytes(batch: pa.RecordBatch, fields: Fields) -> memoryview:
    """The bytes of all texts of a record batch, one after another, as they were found."""
    import pyarrow as pa

    column = _column(batch, fields.text).cast(pa.large_binary())
    if not len(column):
        return memoryview(b"")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[[column.offset, column.offset + len(column)]]
    return memoryview(data)[ends[0] : ends[1]] if data else memoryview(b"")


def _is_stringlike(kind: pa.DataType) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests) or _is_binary(kind)


def _is_binary(kind: pa.DataType) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)


@contextmanager
def arrow_damage_named(source: Source) -> Iterator[None]:
    """Turn what Arrow says of a damaged file into a DamagedInputError that names the file."""
    import pyarrow as pa

    try:
        yield
    except TokenmillError:
        raise
    except (pa.ArrowInvalid, pa.ArrowException) as error:
        raise damaged(source.where, str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise damaged(source.where, str(error)) from error
