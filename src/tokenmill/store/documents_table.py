"""`documents/NNNNN.parquet`: the origin and the kept fields of each document of a shard."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import CharSpans, DocumentBatch, Int32Array, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.store.canonical import RESTORE

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

REQUIRED = ("source", "position", "subset")
"""Columns that every table has and that are never null."""
_DAMAGE = (LookupError, MemoryError, OSError, RuntimeError, SystemError, TypeError, ValueError)
"""Exceptions that Arrow raises for damaged files, in addition to its own errors."""
APPENDS_PER_TABLE = 32
"""Calls of `append` per Arrow table, because a table costs as much as thousands of rows."""
CHARACTERS_PER_TABLE = 1 << 20
"""Characters per Arrow table, because strings take less memory in a table."""
ROWS_PER_GROUP = 1 << 17
"""Rows per row group; fixed, so that the file does not depend on the sizes of batches."""


@dataclass(frozen=True, slots=True)
class DocumentRows:
    """Rows of the documents table."""

    sources: Int32Array
    """Shape (n,): index of each document's source."""
    positions: Int64Array
    """Shape (n,)."""
    ids: list[str | None]
    in_validation: npt.NDArray[np.bool_]
    """Shape (n,)."""
    columns: dict[str, list[str | None]]
    """The kept columns by name."""
    no_loss: list[CharSpans]
    """Token ranges without loss of each document; empty if the table has no such column."""

    @staticmethod
    def of(
        batches: Sequence[DocumentBatch],
        in_validation: npt.NDArray[np.bool_],
        no_loss: list[CharSpans],
    ) -> DocumentRows:
        """The rows of all documents in `batches`, which have the same columns."""
        counts = [len(batch.texts) for batch in batches]
        return DocumentRows(
            sources=np.repeat(np.array([batch.source for batch in batches], np.int32), counts),
            positions=np.concatenate([batch.positions for batch in batches]),
            ids=[i for batch in batches for i in batch.ids or [None] * len(batch.texts)],
            in_validation=in_validation,
            columns={
                name: [value for batch in batches for value in batch.columns[name]]
                for name in batches[0].columns
            },
            no_loss=no_loss,
        )

    @property
    def num_characters(self) -> int:
        """Number of characters in ids and columns."""
        return sum(sum(map(len, filter(None, each))) for each in (self.ids, *self.columns.values()))


def abandon(writer: pq.ParquetWriter) -> None:
    """Close an unwanted Parquet file, even if the disk refuses to write."""
    with contextlib.suppress(OSError, ValueError):  # the failure has been reported already
        writer.close()
    writer.is_open = False  # else the destructor tries again and prints its failure


class DocumentsWriter:
    """Writes the table batch by batch in bounded memory.

    Columns: source (name), position (byte offset in the decompressed source, or row), id, subset,
    then the kept columns as `column.NAME`, then no_loss: token ranges [start, stop) relative to
    the document's first token.
    """

    def __init__(
        self,
        path: Path,
        source_names: Sequence[str] | Mapping[int, str],
        keep: Sequence[str],
        *,
        has_no_loss: bool,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._names = source_names
        self._keep = keep
        self._appended: list[DocumentRows] = []
        self._num_characters = 0
        self._pending: list[pa.Table] = []
        self._num_pending = 0
        """Number of rows in both."""
        written = table_schema(keep, has_no_loss=has_no_loss)
        self._schema = written.set(0, pa.field("source", pa.int32()))
        """Schema of pending rows; sources are numbers until their row group is complete."""
        self._has_no_loss = has_no_loss
        self._writer = pq.ParquetWriter(path, written, compression="zstd")

    def append(self, rows: DocumentRows) -> None:
        """Add rows."""
        num_characters = rows.num_characters
        if (
            len(self._appended) == APPENDS_PER_TABLE
            or self._num_characters + num_characters > CHARACTERS_PER_TABLE
        ):
            self._make_table()
        self._appended.append(rows)
        self._num_characters += num_characters
        self._num_pending += len(rows.ids)
        if self._num_pending >= ROWS_PER_GROUP:
            self._write_groups(final=False)

    def _make_table(self) -> None:
        """Build a table from the rows appended since the last one."""
        import pyarrow as pa

        if not self._appended:
            return
        parts, self._appended, self._num_characters = self._appended, [], 0
        in_validation = np.concatenate([part.in_validation for part in parts])
        subsets = number_array(in_validation.astype(np.int32))
        columns = [
            number_array(np.concatenate([part.sources for part in parts])),
            number_array(np.concatenate([part.positions for part in parts])),
            string_array([name for part in parts for name in part.ids]),
            pa.DictionaryArray.from_arrays(subsets, string_array(["train", "validation"])),
        ]
        for name in self._keep:
            columns.append(string_array([each for part in parts for each in part.columns[name]]))
        if self._has_no_loss:
            columns.append(_range_lists([spans for part in parts for spans in part.no_loss]))
        self._pending.append(pa.table(columns, schema=self._schema))

    def close(self) -> None:
        """Write the remaining rows and the footer."""
        self._write_groups(final=True)
        self._writer.close()

    def discard(self) -> None:
        """Close an unfinished file that is no longer needed."""
        abandon(self._writer)

    def _write_groups(self, *, final: bool) -> None:
        import pyarrow as pa

        self._make_table()
        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        whole = table.num_rows if final else table.num_rows // ROWS_PER_GROUP * ROWS_PER_GROUP
        for row in range(0, whole, ROWS_PER_GROUP):
            group = table.slice(row, min(ROWS_PER_GROUP, whole - row)).combine_chunks()
            numbers = np.from_dlpack(group.column(0).chunk(0))  # to_numpy() would import pandas
            sources = numbers.astype(np.int32, copy=False)
            group = group.set_column(0, "source", self._named(sources))
            self._writer.write_table(group, row_group_size=ROWS_PER_GROUP)
        self._pending = [table.slice(whole)] if whole < table.num_rows else []
        self._num_pending = table.num_rows - whole

    def _named(self, sources: Int32Array) -> pa.DictionaryArray:
        """Return the names of `sources`, shape (n,), as a dictionary of only those that occur.

        A build may have 100,000 sources, but a row group has few of them.
        """
        import pyarrow as pa

        used, indices = np.unique(sources, return_inverse=True)
        names = string_array([self._names[source] for source in used.tolist()])
        return pa.DictionaryArray.from_arrays(number_array(indices.astype(np.int32)), names)


def read_documents(
    path: Path, num_documents: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read a documents table, or some of its columns. Columns that it does not have are skipped.

    Raises:
        VerificationError: the file is not a documents table, has the wrong number of rows, or
            has missing values.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            if file.metadata.num_rows != num_documents:
                why = f"it has {file.metadata.num_rows} rows, but the shard has {num_documents}"
                raise damaged_table(path, f"{why} documents")
            schema = file.schema_arrow
            for field in schema:
                if not field.type.equals(_type_of(field.name)):
                    raise damaged_table(path, f"the column {field.name!r} has type {field.type}")
            if missing := [name for name in REQUIRED if name not in schema.names]:
                raise damaged_table(path, f"it has no column {missing[0]!r}")
            names = schema.names if columns is None else set(columns).intersection(schema.names)
            table = file.read(columns=sorted(names, key=schema.names.index))
        table.validate(full=True)
        table = table.unify_dictionaries()  # each row group has its own dictionary
    except (pa.ArrowException, *_DAMAGE) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the file system's, not the file's
        raise damaged_table(path, str(error) or type(error).__name__) from error
    if table.num_rows != num_documents:
        raise damaged_table(path, f"only {table.num_rows} of {num_documents} rows can be read")
    for name in REQUIRED:
        if name in table.column_names and table.column(name).null_count:
            raise damaged_table(path, f"the column {name!r} has null values")
    return table


def _range_lists(ranges: Sequence[CharSpans]) -> pa.Array:
    """Return an array with a list of {start, stop} for each document."""
    import pyarrow as pa

    offsets = offsets_from_lengths([len(spans) for spans in ranges]).astype(np.int32)
    edges = np.array([span for spans in ranges for span in spans], np.int64).reshape(-1, 2)
    starts, stops = number_array(edges[:, 0]), number_array(edges[:, 1])
    spans = pa.StructArray.from_arrays([starts, stops], ["start", "stop"])
    return pa.ListArray.from_arrays(number_array(offsets), spans)


def table_schema(keep: Sequence[str], *, has_no_loss: bool) -> pa.Schema:
    """Return the columns of a documents table."""
    import pyarrow as pa

    names = ["source", "position", "id", "subset", *(f"column.{name}" for name in keep)]
    names += ["no_loss"] * has_no_loss
    return pa.schema([(name, _type_of(name)) for name in names])


def _type_of(name: str) -> pa.DataType:
    """Return the type of a column; see docs/reference/format.md."""
    import pyarrow as pa

    if name in ("source", "subset"):
        return pa.dictionary(pa.int32(), pa.string())
    if name == "no_loss":
        span = pa.struct([("start", pa.int64()), ("stop", pa.int64())])
        return pa.list_(span)
    return pa.int64() if name == "position" else pa.string()


def damaged_table(path: Path, why: str) -> VerificationError:
    """Return the error for a damaged documents table."""
    return VerificationError("a documents table is damaged", where=str(path), why=why, hint=RESTORE)


# `pyarrow.array` and `pyarrow.scalar` import pandas, if it is installed, to check the type of their
# argument. This costs half a second and 60 MB in every worker process, so arrays are built directly
# from buffers.


def number_array(values: npt.NDArray[np.number]) -> pa.Array:
    """Return numbers, shape (n,), as an Arrow array; contiguous ones are not copied."""
    import pyarrow as pa

    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, buffer])


def string_array(values: Sequence[str | None]) -> pa.Array:
    """Return strings and nulls, together at most 2 GiB of UTF-8, as an Arrow array.

    Raises:
        OverflowError: the strings are longer.
        UnicodeEncodeError: a string contains half of a surrogate pair.
    """
    import pyarrow as pa

    encoded = [b"" if value is None else value.encode() for value in values]
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{offsets[-1]} bytes of strings in one Arrow array")
    nulls = None
    if None in values:
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        nulls = pa.py_buffer(np.packbits(present, bitorder="little"))
    content = [nulls, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(values), content)
