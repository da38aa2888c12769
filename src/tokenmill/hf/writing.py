"""Write rows to an Arrow file for `datasets`. It gets its final name when it is complete."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.hf.columns import RowColumns, RowFormat
from tokenmill.hf.portions import Portion
from tokenmill.hf.resuming import Done, UnfinishedRows
from tokenmill.hf.summary import Summary
from tokenmill.store.arrow_arrays import number_array
from tokenmill.store.files import storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WRITE_BYTES = 64 << 20
"""The largest batch that is written, and so the largest row."""


class RowWriter:
    """Collects rows, and writes them in batches of at most `batch_rows` rows and 64 MiB.

    After each batch the file is a place to resume at: see `Done`.
    """

    def __init__(
        self, unfinished: UnfinishedRows, form: RowFormat, batch_rows: int, summary: Summary
    ) -> None:
        """Begin a stream, or append to the file of an earlier run."""
        import pyarrow as pa

        by_size = max(MAX_WRITE_BYTES // (form.context_length * max(form.token_bytes, 1)), 1)
        self._unfinished = unfinished
        self._form = form
        self._schema = form.features.arrow_schema
        done = unfinished.done
        with self._storage_errors():
            sink = unfinished.sink(len(self._schema.serialize()))
            self._stream = pa.ipc.new_stream(sink, self._schema)
        self._buffer = form.empty(min(batch_rows, by_size))
        self._filled = 0
        self._summary = summary
        self._rows, self._tokens = done.rows, done.counts.get("tokens", 0)
        self._made = done.rows_before
        self._skipped = done.rows - done.rows_before
        self._begun = done

    def write(self, portion: Portion) -> None:
        """Make the rows of a portion directly in the buffer."""
        place, summary = portion.place, self._summary
        rows = summary.timed("windows", portion.make)
        self._begun = Done(
            document=place.document,
            skipped=place.skipped,
            counts={**place.counts, "tokens": self._tokens},
            rows_before=self._made,
        )
        done = min(self._skipped, len(rows))  # already in the file
        self._skipped -= done
        while done < len(rows):
            part = self._room(len(rows) - done)
            summary.timed("windows", rows.fill, part, done)
            done += len(part)
        self._made += len(rows)
        self._tokens += rows.num_tokens
        summary.tokens += rows.num_tokens

    def close(self) -> None:
        """Write the remaining rows and the end of the stream.

        Raises:
            StorageError: the file system refused it.
        """
        self._flush()
        with self._storage_errors():
            self._stream.close()

    def _room(self, wanted: int) -> RowColumns:
        """Free rows of the buffer, at most as many as requested."""
        if self._filled == len(self._buffer):
            self._flush()
            self._unfinished.record(self._begun, self._rows)
        start = self._filled
        self._filled = min(start + wanted, len(self._buffer))
        return self._buffer[start : self._filled]

    def _flush(self) -> None:
        if self._filled:
            batch = record_batch(self._buffer[: self._filled], self._form, self._schema)
            with self._storage_errors():
                self._summary.timed("write", self._stream.write_batch, batch)
        self._rows += self._filled
        self._summary.rows += self._filled
        self._filled = 0

    def _storage_errors(self) -> AbstractContextManager[None]:
        return storage_errors("write the rows", self._unfinished.path)


def record_batch(rows: RowColumns, form: RowFormat, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as an Arrow table; values with the right dtype are not copied."""
    import pyarrow as pa

    arrays: list[Any] = []
    for name in form.columns:
        values, offsets = rows.column(name, form.dtype_of(name))
        starts = number_array(offsets.astype(np.int32))
        arrays.append(pa.ListArray.from_arrays(starts, number_array(values)))
    return pa.record_batch(arrays, schema=schema)
