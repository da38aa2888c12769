"""A file of rows that an interrupted run leaves unfinished and the next run completes.

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
from typing import BinaryIO

import msgspec

from tokenmill.core.errors import EngineError
from tokenmill.hf.log import logger
from tokenmill.hf.workers import WorkerDiedError
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

ROWS, DONE = "rows.arrow", "done.json"


class Done(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The progress of a run: the rows in the file, and where the next ones begin."""

    document: int = 0
    """First document of the next batch;"""
    skipped: int = 0
    """documents of this batch with rows in the file;"""
    batch_size: int | None = None
    """and the documents per batch."""
    counts: dict[str, int] = {}
    """Counts of the summary before that batch."""
    rows_before: int = 0
    """Rows of all earlier batches."""
    rows: int = 0
    """Rows in the file: the first `rows - rows_before` of the next portion are there."""
    num_bytes: int = 0
    """Bytes of the file that hold these rows."""


class UnfinishedRows:
    """An unfinished file and its progress."""

    def __init__(self, path: Path, folder: Path, *, can_resume: bool) -> None:
        self.path = path
        """The path for error messages."""
        self.done = Done()
        self.batch_size: int | None = None
        self._folder = folder
        self._can_resume = can_resume
        with storage_errors("write the rows", path):
            if can_resume:
                self.done = _read_done(folder)
            self._file = _opened(folder / ROWS, self.done)
        if self.done.rows:
            self.batch_size = self.done.batch_size

    def sink(self, num_schema_bytes: int) -> ArrowSink:
        """What Arrow writes its stream to: its schema is not written a second time."""
        return ArrowSink(self._file, num_schema_bytes if self.done.rows else 0)

    def record(self, begun: Done, num_rows: int) -> None:
        """Record that `num_rows` rows are in the file, and that the portion `begun` comes next.

        Raises:
            StorageError: the file system refused it.
        """
        if not self._can_resume:
            return
        with storage_errors("write the rows", self.path):
            self._file.flush()
            fsync_path(self._folder / ROWS)
            num_bytes = (self._folder / ROWS).stat().st_size
            done = msgspec.structs.replace(
                begun, rows=num_rows, num_bytes=num_bytes, batch_size=self.batch_size
            )
            write_atomically(self._folder / DONE, msgspec.json.encode(done))

    def close(self) -> None:
        """Close the file.

        Raises:
            StorageError: the file system refused it.
        """
        with storage_errors("write the rows", self.path):
            self._file.close()

    def publish(self) -> None:
        """Give the file its final name."""
        with storage_errors("write the rows", self.path):
            fsync_path(self._folder / ROWS)
            rename_flushed(self._folder / ROWS, self.path)


def _opened(path: Path, done: Done) -> BinaryIO:
    """Open a new file, or an existing one after its last complete row."""
    if not done.rows:
        return path.open("wb")
    file = path.open("r+b")
    file.truncate(done.num_bytes)
    file.seek(done.num_bytes)
    return file


@contextmanager
def unfinished_rows(
    path: Path, *, can_resume: bool, fresh: bool = False
) -> Iterator[UnfinishedRows]:
    """Yield the file that becomes `path` at the end of the block.

    After an error, and after a kill, what is done of it stays if the run can resume; one that has
    nothing done is removed. Of two processes that make the same rows, one keeps what it has done.
    With `fresh`, nothing of an earlier run is used. If the engine was wrong, nothing stays.

    Raises:
        StorageError: the file system refused it.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors("write the rows", path):
            folder = unfinished_beside(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_left(path)
            if not can_resume or not _hold(folder, stack):
                can_resume = False
                folder = stack.enter_context(temporary_folder(path))
            if fresh:
                (folder / DONE).unlink(missing_ok=True)
        unfinished = UnfinishedRows(path, folder, can_resume=can_resume)
        is_published = False
        try:
            yield unfinished
            unfinished.close()
            unfinished.publish()
            is_published = True
        except WorkerDiedError:
            raise
        except EngineError:
            (folder / DONE).unlink(missing_ok=True)
            raise
        finally:
            unfinished.close()
            if can_resume and (is_published or not (folder / DONE).exists()):
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
            return done
        logger.warning("%s is too short: making all rows again", folder / ROWS)
    except FileNotFoundError:
        pass
    except msgspec.DecodeError as error:
        logger.warning("%s is damaged (%s): making all rows again", folder / DONE, error)
    return Done()
