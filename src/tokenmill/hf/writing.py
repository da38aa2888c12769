"""Write rows to an Arrow file for `datasets`, which a killed run leaves to the next one.

    .cache-NAME.arrow.unfinished/rows.arrow     an Arrow stream without its end
    .cache-NAME.arrow.unfinished/done.json      how much of it is whole, and what comes next

`done.json` is replaced after each batch of rows, once these are on the disk. What is behind it in
the file is cut off, so the file of a resumed run equals that of an undisturbed one.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.hf.columns import RowColumns, RowFormat
from tokenmill.hf.rows import Place, Portion
from tokenmill.hf.summary import Summary, logger
from tokenmill.hf.workers import WorkerDiedError
from tokenmill.store.documents_table import number_array
from tokenmill.store.files import (
    ArrowSink,
    fsync_path,
    locked_folder,
    remove_left,
    rename_flushed,
    storage_errors,
    temporary_folder,
    unfinished_beside,
    write_atomically,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WRITE_BYTES = 64 << 20
"""The largest batch that is written, and so the largest row."""
ROWS, DONE = "rows.arrow", "done.json"
WRITE = "write the rows"


class Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The progress of a run: the rows in the file, and where the next ones begin."""

    place: Place = Place()
    """Where the next portion begins."""
    batch_size: int | None = None
    """Documents per batch."""
    rows_before: int = 0
    """Rows of all earlier portions."""
    rows: int = 0
    """Rows in the file: the first `rows - rows_before` of the next portion are there."""
    num_bytes: int = 0
    """Bytes of the file that hold these rows."""


class RowWriter:
    """Writes rows in batches of at most `batch_rows` rows and 64 MiB; can resume after each."""

    def __init__(self, path: Path, folder: Path, *, can_resume: bool) -> None:
        """Open a new file in a folder, or that of an earlier run after its last whole row."""
        self.path = path
        """The path for error messages."""
        self._folder, self._can_resume = folder, can_resume
        with storage_errors(WRITE, path):
            self.done = _read_done(folder) if can_resume else Done()
            self._file = (folder / ROWS).open("r+b" if self.done.rows else "wb")
            self._file.truncate(self.done.num_bytes)
            self._file.seek(self.done.num_bytes)
        self.batch_size = self.done.batch_size

    def begin(self, form: RowFormat, batch_rows: int, summary: Summary) -> None:
        """Begin the stream, or continue that of an earlier run."""
        import pyarrow as pa

        self._form, self._summary, done = form, summary, self.done
        self._schema = form.features.arrow_schema
        num_there = len(self._schema.serialize()) if done.rows else 0
        with storage_errors(WRITE, self.path):
            self._stream = pa.ipc.new_stream(ArrowSink(self._file, num_there), self._schema)
        by_size = max(MAX_WRITE_BYTES // (form.context_length * max(form.token_bytes, 1)), 1)
        self._buffer = form.empty(min(batch_rows, by_size))
        self._filled = 0
        self._rows, self._tokens = done.rows, done.place.counts.get("tokens", 0)
        self._made, self._skipped = done.rows_before, done.rows - done.rows_before
        self._next = done
        if done.rows:
            logger.info("resuming: an earlier run has made %s rows", f"{done.rows:,}")
            summary.resume(done.place.counts, done.rows)

    def write(self, portion: Portion) -> None:
        """Make the rows of a portion directly in the buffer."""
        summary, place = self._summary, portion.place
        rows = summary.timed("windows", portion.make)
        counts = {**place.counts, "tokens": self._tokens}
        place = msgspec.structs.replace(place, counts=counts)
        self._next = Done(place=place, rows_before=self._made, batch_size=self.batch_size)
        done = min(self._skipped, len(rows))  # already in the file
        self._skipped -= done
        while done < len(rows):
            if self._filled == len(self._buffer):
                self._flush()
                self.record(self._next, self._rows)
            part = self._buffer[self._filled : self._filled + len(rows) - done]
            summary.timed("windows", rows.fill, part, done)
            self._filled += len(part)
            done += len(part)
        self._made += len(rows)
        self._tokens += rows.num_tokens
        summary.tokens += rows.num_tokens

    def end(self) -> None:
        """Write the remaining rows and the end of the stream."""
        self._flush()
        with storage_errors(WRITE, self.path):
            self._stream.close()

    def record(self, begun: Done, num_rows: int) -> None:
        """Record that `num_rows` rows are in the file, and that the portion `begun` comes next."""
        if not self._can_resume:
            return
        with storage_errors(WRITE, self.path):
            self._file.flush()
            fsync_path(self._folder / ROWS)
            num_bytes = (self._folder / ROWS).stat().st_size
            done = msgspec.structs.replace(begun, rows=num_rows, num_bytes=num_bytes)
            write_atomically(self._folder / DONE, msgspec.json.encode(done))

    def publish(self) -> None:
        """Give the file its final name."""
        with storage_errors(WRITE, self.path):
            self.close()
            fsync_path(self._folder / ROWS)
            rename_flushed(self._folder / ROWS, self.path)

    def close(self) -> None:
        """Close the file."""
        with storage_errors(WRITE, self.path):
            self._file.close()

    def _flush(self) -> None:
        if self._filled:
            batch = record_batch(self._buffer[: self._filled], self._form, self._schema)
            with storage_errors(WRITE, self.path):
                self._summary.timed("write", self._stream.write_batch, batch)
        self._rows += self._filled
        self._summary.rows += self._filled
        self._filled = 0


@contextmanager
def unfinished_rows(path: Path, *, can_resume: bool, fresh: bool = False) -> Iterator[RowWriter]:
    """Yield the writer of the file that becomes `path` at the end of the block.

    After an error, and after a kill, what is done of it stays if the run can resume; one that has
    nothing done is removed. Of two processes that make the same rows, one keeps what it has done.
    With `fresh`, nothing of an earlier run is used. If the engine was wrong, nothing stays.

    Raises:
        StorageError: the file system refused it.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors(WRITE, path):
            folder = unfinished_beside(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_left(path)
            can_resume = can_resume and _hold(folder, stack)
            if not can_resume:
                folder = stack.enter_context(temporary_folder(path))
            if fresh:
                (folder / DONE).unlink(missing_ok=True)
        writer = RowWriter(path, folder, can_resume=can_resume)
        try:
            yield writer
            writer.publish()
            (folder / DONE).unlink(missing_ok=True)
        except WorkerDiedError:
            raise
        except EngineError:
            (folder / DONE).unlink(missing_ok=True)
            raise
        finally:
            writer.close()
            if can_resume and not (folder / DONE).exists():
                shutil.rmtree(folder, ignore_errors=True)


def _hold(folder: Path, stack: contextlib.ExitStack) -> bool:
    """Create a folder and lock it; False if another process has it, or locks do not exist."""
    folder.mkdir(exist_ok=True)
    try:
        return stack.enter_context(locked_folder(folder))
    except OSError:
        return False


def _read_done(folder: Path) -> Done:
    """The progress of an earlier run; none if it cannot be read, or if its file is too short."""
    try:
        done = msgspec.json.decode((folder / DONE).read_bytes(), type=Done)
        if (folder / ROWS).stat().st_size >= done.num_bytes:
            return done if done.rows else Done()
        logger.warning("%s is too short: making all rows again", folder / ROWS)
    except FileNotFoundError:
        pass
    except msgspec.DecodeError as error:
        logger.warning("%s is damaged (%s): making all rows again", folder / DONE, error)
    return Done()


def record_batch(rows: RowColumns, form: RowFormat, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as an Arrow table; values with the right dtype are not copied."""
    import pyarrow as pa

    arrays: list[Any] = []
    for name in form.columns:
        values, offsets = rows.column(name, form.dtype_of(name))
        starts = number_array(offsets.astype(np.int32))
        arrays.append(pa.ListArray.from_arrays(starts, number_array(values)))
    return pa.record_batch(arrays, schema=schema)
