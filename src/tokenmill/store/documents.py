"""`documents/NNNNN.parquet`: where each document of a shard came from, and what was kept of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.records import CharSpans, DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_PER_GROUP = 1 << 17
"""Fixed, so that the file's bytes do not depend on the sizes of batches."""


def abandon(writer: pq.ParquetWriter) -> None:
    """Close a Parquet file that is not wanted, on a disk that may refuse even that."""
    with contextlib.suppress(OSError, ValueError):  # the failure has been reported already
        writer.close()
    writer.is_open = False  # else the destructor tries again, and prints why it cannot


class DocumentsWriter:
    """Writes the table batch by batch, with bounded memory.

    Columns: source (name), position (byte offset in the decompressed source, or row), id, subset,
    then the kept columns as `column.NAME`, then no_loss: token ranges [start, stop) counted from
    the document's first token.
    """

    def __init__(
        self, path: Path, source_names: Sequence[str], keep: Sequence[str], *, has_no_loss: bool
    ) -> None:
        import pyarrow as pa

        self._names = pa.array(source_names, pa.string())
        self._keep = keep
        self._pending: list[pa.Table] = []
        text = pa.dictionary(pa.int32(), pa.string())
        fields = [("source", text), ("position", pa.int64()), ("id", pa.string())]
        fields += [("subset", text), *((f"column.{name}", pa.string()) for name in keep)]
        if has_no_loss:
            span = pa.struct([("start", pa.int64()), ("stop", pa.int64())])
            fields.append(("no_loss", pa.list_(span)))
        self._schema = pa.schema(fields)
        self._has_no_loss = has_no_loss
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd")

    def append(
        self, batch: DocumentBatch, in_validation: np.ndarray, no_loss: list[CharSpans] | None
    ) -> None:
        """Add the rows of a batch; `in_validation` has shape (n,) and dtype bool."""
        import pyarrow as pa

        count = len(batch.texts)
        sources = pa.array(np.full(count, batch.source, np.int32))
        subsets = pa.array(in_validation.astype(np.int32))
        columns = [
            pa.DictionaryArray.from_arrays(sources, self._names),
            pa.array(batch.positions),
            pa.array(batch.ids or [None] * count, pa.string()),
            pa.DictionaryArray.from_arrays(subsets, pa.array(["train", "validation"])),
            *(pa.array(batch.columns[name], pa.string()) for name in self._keep),
        ]
        if self._has_no_loss:
            rows = [[{"start": a, "stop": b} for a, b in spans] for spans in no_loss or []]
            columns.append(pa.array(rows, self._schema.field("no_loss").type))
        self._pending.append(pa.table(columns, schema=self._schema))
        if sum(table.num_rows for table in self._pending) >= ROWS_PER_GROUP:
            self._write_groups(final=False)

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._write_groups(final=True)
        self._writer.close()

    def discard(self) -> None:
        """Close the file as it is; it is not wanted any more."""
        abandon(self._writer)

    def _write_groups(self, *, final: bool) -> None:
        import pyarrow as pa

        if not self._pending:
            return
        table = pa.concat_tables(self._pending)
        whole = table.num_rows if final else table.num_rows // ROWS_PER_GROUP * ROWS_PER_GROUP
        for row in range(0, whole, ROWS_PER_GROUP):
            group = table.slice(row, min(ROWS_PER_GROUP, whole - row)).combine_chunks()
            self._writer.write_table(group, row_group_size=ROWS_PER_GROUP)
        self._pending = [table.slice(whole)] if whole < table.num_rows else []
