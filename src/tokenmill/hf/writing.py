"""Rows to an Arrow file that `datasets` opens; it bears its name only when it is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokenmill.arrow_arrays import number_array
from tokenmill.errors import UserError
from tokenmill.hf.config import MAX_WRITE_BYTES
from tokenmill.hf.summary import Summary
from tokenmill.hf.windows import CELL_BYTES, COLUMNS, RowColumns, Windows
from tokenmill.store.files import storage_errors, whole_file

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Features

DTYPES = {"input_ids": "int64", "attention_mask": "int8", "labels": "int64"}


def row_features() -> Features:
    """Columns as `dataset.map` gives them: lists without a length of their own."""
    from datasets import Features, List, Value

    return Features({name: List(Value(dtype)) for name, dtype in DTYPES.items()})


class RowWriter:
    """Collects rows, and writes them in batches of at most `batch_rows` rows and 64 MiB."""

    def __init__(
        self, file: Any, path: Path, context_length: int, batch_rows: int, summary: Summary
    ) -> None:
        """Begin a stream in `file`; `path` is what errors name."""
        import pyarrow as pa

        by_size = max(MAX_WRITE_BYTES // (context_length * CELL_BYTES), 1)
        self._path = path
        self._schema = row_features().arrow_schema
        with _storage_errors(path):
            self._stream = pa.ipc.new_stream(file, self._schema)
        self._buffer = RowColumns.empty(min(batch_rows, by_size), context_length)
        self._filled = 0
        self._summary = summary

    def write_windows(self, windows: Windows) -> None:
        """Make rows of windows, in the buffer itself."""
        done = 0
        while done < len(windows):
            part = self._room(len(windows) - done)
            self._summary.timed("windows", windows.fill, part, done)
            done += len(part)
        self._summary.tokens += windows.num_tokens

    def write_rows(self, rows: RowColumns) -> None:
        """Take over rows that are made."""
        done = 0
        while done < len(rows):
            part = self._room(len(rows) - done)
            given = rows[done : done + len(part)]
            part.input_ids[:] = given.input_ids
            part.attention_mask[:] = given.attention_mask
            part.labels[:] = given.labels
            done += len(part)
        self._summary.tokens += int(np.count_nonzero(rows.attention_mask))

    def close(self) -> None:
        """Write what is left, and the end of the stream.

        Raises:
            StorageError: the file system refused it.
        """
        self._flush()
        with _storage_errors(self._path):
            self._stream.close()

    def _room(self, wanted: int) -> RowColumns:
        """Rows of the buffer that are free, at most as many as wanted."""
        if self._filled == len(self._buffer):
            self._flush()
        start = self._filled
        self._filled = min(start + wanted, len(self._buffer))
        return self._buffer[start : self._filled]

    def _flush(self) -> None:
        if self._filled:
            batch = record_batch(self._buffer[: self._filled], self._schema)
            with _storage_errors(self._path):
                self._summary.timed("write", self._stream.write_batch, batch)
        self._summary.rows += self._filled
        self._filled = 0


def record_batch(rows: RowColumns, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in Arrow's form; the values are not copied."""
    import pyarrow as pa

    num_rows, length = rows.input_ids.shape
    offsets = number_array(np.arange(num_rows + 1, dtype=np.int32) * np.int32(length))
    arrays = [
        pa.ListArray.from_arrays(offsets, number_array(getattr(rows, name).reshape(-1)))
        for name in COLUMNS
    ]
    return pa.record_batch(arrays, schema=schema)


def checked_rows(result: Mapping[str, npt.ArrayLike], context_length: int) -> RowColumns:
    """What a function of the user's returned, as rows.

    Raises:
        UserError: a column is missing, or has another shape.
    """
    given = {name: np.asarray(result[name]) for name in COLUMNS if name in result}
    shapes = {name: array.shape for name, array in given.items()}
    num_rows = len(given["input_ids"]) if "input_ids" in given else 0
    if len(given) != len(COLUMNS) or set(shapes.values()) != {(num_rows, context_length)}:
        raise UserError(
            "_tokenize_function did not return rows",
            why=f"{', '.join(COLUMNS)} must have the shape (rows, {context_length}); got {shapes}",
        )
    return RowColumns(*(given[name].astype(DTYPES[name], copy=False) for name in COLUMNS))


@contextmanager
def arrow_file(path: Path) -> Iterator[Any]:
    """A file for Arrow that gets its name at the end, and is removed where that is not reached.

    Raises:
        StorageError: the file system refused it.
    """
    import pyarrow as pa

    with whole_file(path) as unfinished:
        with _storage_errors(path):
            file = pa.OSFile(str(unfinished), "wb")
        try:
            yield file
        finally:
            with _storage_errors(path):
                file.close()


def _storage_errors(path: Path) -> AbstractContextManager[None]:
    return storage_errors("write the rows", path)
