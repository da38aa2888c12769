"""Turning record batches into document batches, with the same rejections as for JSON Lines."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.core.records import DocumentBatch, Int64Array
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Block, Parse
from tokenmill.read.formats.rendered import RecordRenderer, as_json
from tokenmill.read.rendering.chat.conversations import Conversations
from tokenmill.read.values import UnfitRecordError, char_spans, column_value, not_utf8

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.read.source import Source

Reasons = dict[int, tuple[UnfitRecordError, bytes]]
"""Why rows are rejected, by their number in a batch; and the raw text, if it is not UTF-8."""


def parse_record_batch(
    batch: pa.RecordBatch, first_row: int, source: Source, fields: Fields
) -> DocumentBatch:
    """Return the documents of a record batch; null, undecodable and mistyped rows are rejected."""
    texts, reasons = _texts(batch.column(fields.text))
    extra = {name: _values(name, batch.column(name), reasons, source) for name in fields.extra}
    spans = None
    if fields.no_loss:
        spans = []
        for row, value in enumerate(extra[fields.no_loss]):
            try:
                spans.append(char_spans(value))
            except UnfitRecordError as error:
                spans.append([])
                reasons.setdefault(row, (error, b""))
    sizes = text_sizes(texts)
    rejected = [
        reason.rejection(source.index, first_row + row, raw or texts[row].encode())
        for row, (reason, raw) in sorted(reasons.items())
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


def rendering_parser(fields: Fields) -> Parse:
    """Return a parser that renders the rows of record batches."""
    renderer = RecordRenderer(fields)
    paths = None if fields.wanted is None else [name.split(".") for name in fields.wanted]

    def parse(block: Block, source: Source) -> DocumentBatch:
        batch: pa.RecordBatch = block.content
        reasons: Reasons = {}
        columns = [
            _values(name, _decoded(column, fields), reasons, source)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        found = paths or [[name] for name in batch.schema.names]
        records = [_nested(found, values) for values in zip(*columns, strict=True)]
        if isinstance(fields.rendering, Conversations):
            records = [_without_nulls(record) for record in records]
        rows = [row for row in range(batch.num_rows) if row not in reasons]
        rejected = []
        for row in sorted(reasons):
            kept = as_json(records[row])
            rejected.append(reasons[row][0].rejection(source.index, block.start + row, kept))
        return renderer.render(
            source.index,
            [records[row] for row in rows],
            np.array(rows, np.int64) + block.start,
            rejected=rejected,
        )

    return parse


def _decoded(column: pa.Array, fields: Fields) -> pa.Array:
    """Decode bytes as strings, if the fields of a text are given by name."""
    import pyarrow as pa

    if fields.wanted is None or not _is_binary(column.type):
        return column
    return column.cast(pa.large_binary()).view(pa.large_string())


def _nested(paths: Sequence[Sequence[str]], values: Sequence[object]) -> dict[str, Any]:
    """Build a nested record from values at paths; paths inside another value are already there."""
    record: dict[str, Any] = {}
    for path, value in sorted(zip(paths, values, strict=True), key=lambda item: len(item[0])):
        node: Any = record
        for key in path[:-1]:
            node = node.setdefault(key, {}) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.setdefault(path[-1], value)
    return record


def _without_nulls(value: Any) -> Any:
    """Remove nulls from a conversation.

    Arrow adds every field of any message to all messages, with nulls that a template would print.
    """
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _values(name: str, column: pa.Array, reasons: Reasons, source: Source) -> list[object]:
    """Return the values of a column; rows with strings that are not UTF-8 get a reason."""
    values: list[object] = []
    try:
        with contextlib.suppress(UnicodeDecodeError):
            return [*column.to_pylist()]
        for row, value in enumerate(column):
            try:
                values.append(value.as_py())
            except UnicodeDecodeError as error:
                values.append(None)
                reasons.setdefault(row, (not_utf8(error, repr(name)), b""))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise damaged(source.where, f"a value cannot be converted to Python: {error}") from error
    return values


def _texts(column: pa.Array) -> tuple[list[str], Reasons]:
    """Return the strings of a column, "" for bad rows, and the reasons of the bad rows."""
    import pyarrow as pa

    reasons: Reasons = {}
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
            reasons[row] = UnfitRecordError("null-text", "the text is null"), b""
        elif isinstance(value, bytes):
            try:
                values[row] = value.decode()
                continue
            except UnicodeDecodeError as error:
                reasons[row] = not_utf8(error, "the text"), value
        else:
            continue
        values[row] = ""
    return values, reasons


def text_sizes(texts: Sequence[str]) -> Int64Array:
    """Return the size of each text in UTF-8, shape (n,)."""
    sizes = (len(text) if text.isascii() else len(text.encode()) for text in texts)
    return np.fromiter(sizes, np.int64, len(texts))


def text_bytes(batch: pa.RecordBatch, fields: Fields) -> memoryview:
    """Return the raw bytes of all texts of a record batch, concatenated."""
    import pyarrow as pa

    column = batch.column(fields.text).cast(pa.large_binary())
    if not len(column):
        return memoryview(b"")
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[[column.offset, column.offset + len(column)]]
    return memoryview(data)[ends[0] : ends[1]] if data else memoryview(b"")


def _is_binary(kind: pa.DataType) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(test(kind) for test in tests)
