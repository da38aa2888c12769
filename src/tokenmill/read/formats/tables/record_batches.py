"""Handling of untrusted record batches; only for the parser process, which they can crash.

Arrow trusts the lengths and offsets in a file. An offset outside its buffer reads arbitrary memory,
so a record batch must not be used before `validated`. Errors do not name the file; the requesting
process adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tokenmill.core.errors import UserError
from tokenmill.read.fields import field_hint
from tokenmill.read.formats.tables.messages import Columns, ReadRows

Announce = Callable[[list[list[tuple[int, int]]]], None]
"""Announces which ranges [start, stop) of each column will be read, in order."""


class Table(Protocol):
    """An open table file in the parser process. Its content is not trusted.

    A UserError that a method raises is passed on. Any other exception means a damaged file.
    """

    @property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""

    @property
    def num_groups(self) -> int:
        """The number of parts that can be read separately."""

    def groups(self) -> list[tuple[int, int]]:
        """Return the bytes and rows of each part, over all columns."""

    def text_bytes(self, column: str) -> int:
        """Estimate the bytes of a text column; 0 if there are no groups."""

    def batches(
        self, command: ReadRows, columns: Sequence[str], announce: Announce
    ) -> tuple[int, Iterator[pa.RecordBatch]]:
        """Return the first row of the requested groups, and their unvalidated record batches."""


def check_columns(schema: pa.Schema, columns: Columns) -> list[str]:
    """Return the requested columns that a file has.

    Raises:
        UserError: a required column is missing, or the text column does not contain strings.
    """
    types = {name: _type_at(schema, name) for name in columns.names}
    for name, kind in types.items():
        if kind is None and name not in columns.optional:
            raise UserError(
                f"cannot find the column {name!r}",
                why=f"the columns are {', '.join(schema.names)}",
                hint=field_hint(name, schema.names),
            )
    text = columns.text
    if text is not None and not _holds_text(types[text]):
        why = f"its type is {types[text]}, not a string"
        raise UserError(f"the column {text!r} does not contain text", why=why)
    return [name for name, kind in types.items() if kind is not None]


def _type_at(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Return the type of a column, given its name or dotted path; None if it does not exist."""
    kind: pa.DataType = pa.struct(list(schema))
    for key in name.split("."):
        if not pa.types.is_struct(kind) or kind.get_field_index(key) < 0:
            return None
        kind = kind.field(key).type
    return kind


def iter_rows(
    table: Table, command: ReadRows, announce: Announce
) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    """Yield (first row, bytes in the file, wanted columns) for slices of about `batch_bytes`.

    Optional columns that the file does not have are null.
    """
    present = {*check_columns(table.schema, command.columns)}
    wanted = {name: name.split(".") for name in command.columns.names}
    if command.columns.whole:
        wanted = {name: [name] for name in table.schema.names}
        present = {*wanted}
    row, batches = table.batches(command, [*wanted], announce)
    for batch in map(validated, batches):
        for piece in sliced(batch, command.batch_bytes):
            columns = {
                name: column_of(piece, path) if name in present else pa.nulls(piece.num_rows)
                for name, path in wanted.items()
            }
            yield row, piece.nbytes, pa.record_batch(columns)
            row += piece.num_rows


def validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Check that all lengths, offsets and indices of a record batch lie inside its buffers.

    Strings become bytes, so that a string that is not UTF-8 only rejects its row, not the file.

    Raises:
        pa.ArrowInvalid: the record batch is damaged.
    """
    batch.validate()
    for column in batch.columns:
        column.view(_with_bytes(column.type)).validate(full=True)
    return batch


def _with_bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with the same layout but bytes instead of strings."""
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
    """Yield slices of a record batch of about `batch_bytes`."""
    rows = max(batch.num_rows * batch_bytes // max(batch.nbytes, 1), 1)
    return (batch.slice(row, rows) for row in range(0, batch.num_rows, rows))


def column_of(batch: pa.RecordBatch, path: Sequence[str]) -> pa.Array:
    """Return the column at a path, in a type that converts to Python values."""
    first, *rest = path
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
    """Convert string views to strings: a slice of a view would contain the data of all rows."""
    if pa.types.is_string_view(column.type):
        return column.view(pa.binary_view()).cast(pa.large_binary()).view(pa.large_string())
    return column.cast(pa.large_binary()) if pa.types.is_binary_view(column.type) else column


def _holds_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
    return any(getattr(pa.types, f"is_{test}")(kind) for test in (*tests, "null"))
