"""Reading tables through parser processes, because damaged files can crash Arrow.

Arrow's C++ readers trust the metadata in a file, so they run in a separate process. A crash there
becomes a DamagedInputError here, and a new process reads the next file. Results are validated and
rewritten before they are sent back, so they can be trusted. A process is kept for the next file.
"""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from tokenmill.core.child import Child, ChildEnded, Program
from tokenmill.core.errors import EngineError, InternalError, TokenmillError
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Block
from tokenmill.read.formats.tables.messages import (
    BATCHES_PER_DECODE,
    About,
    Announced,
    Ask,
    Bytes,
    Columns,
    Command,
    Failed,
    Next,
    ReadRows,
    Reply,
    Rows,
    TableFile,
    Value,
    Wanted,
)
from tokenmill.read.range_file import BLOCK_BYTES, RangeFile

if TYPE_CHECKING:
    from tokenmill.read.formats.format import Extent
    from tokenmill.read.source import Source

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
MAX_IDLE = 1
"""Idle processes kept for the next file; each takes about 25 MB."""
PROGRAM = Program(
    module="tokenmill.read.formats.tables.process",
    task="parses an input",
    replies=Reply,
    environment={
        "ARROW_IO_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        # The system's allocator detects more memory errors that a damaged file can cause.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        # Batches are allocated and freed often: keep their pages to avoid new page faults.
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    },
    without=("numpy",),  # saves 10 MB and a third of the start
    pipe_bytes=1 << 20,
)

_idle: deque[Child] = deque()


def iter_rows(
    source: Source,
    fields: Fields | Columns,
    extent: Extent,
    batch_bytes: int,
    raw: BinaryIO | None = None,
) -> Iterator[Block]:
    """Yield the rows of an extent of row groups or record batches, in order.

    The content of a block is a record batch with the requested columns under their requested names,
    the text first; or with all columns of the file, if the whole record was requested. `raw` is
    the opened file, for callers that track how far it was read.

    Raises:
        DamagedInputError: the file is damaged, or crashes Arrow.
        UserError: a field is missing, or the text is not a column of strings.
        OSError: the file cannot be read.
    """
    import pyarrow as pa

    # A caller that needs little of a remote file downloads little.
    block_bytes = min(batch_bytes * BATCHES_PER_DECODE, BLOCK_BYTES) if source.is_distant else 0
    command = ReadRows(
        file=_file(source, block_bytes),
        columns=_columns(fields),
        groups=None if extent.stop is None else (extent.start, extent.stop),
        first_row=extent.first_row,
        batch_bytes=batch_bytes,
    )
    with _parser(source, raw) as parser:
        parser.send(command)
        ahead = False  # often only the first rows are needed
        while True:
            reply, payload = parser.answer()
            if not isinstance(reply, Rows):
                break
            if raw and not source.is_distant:
                raw.seek(reply.position)
            if ahead:
                parser.send(Next(more=True))
            batch = pa.ipc.open_stream(pa.py_buffer(payload)).read_next_batch()
            try:
                yield Block(reply.first, reply.first + batch.num_rows, reply.num_bytes, batch)
            except GeneratorExit:
                if not ahead:  # else end the process: the next rows may take long
                    parser.send(Next(more=False))
                    with contextlib.suppress(TokenmillError, OSError):
                        parser.answer()
                raise
            if not ahead:
                parser.send(Next(more=True))
            ahead = not source.is_distant


def end_idle_parsers() -> None:
    """End idle processes to free their memory."""
    while _idle:
        _idle.pop().end()


def ask(source: Source, about: About, fields: Fields | None = None) -> list[int]:
    """Return the numbers that `Ask` describes.

    Raises:
        UserError: a field is missing, or the text is not a column of strings.
        DamagedInputError: the file is damaged, or crashes Arrow.
    """
    return _value(source, about, _columns(fields or Fields())).numbers


def column_names(source: Source, required: str) -> list[str]:
    """Return the names of all columns.

    Raises:
        UserError: the `required` one is missing.
        DamagedInputError: the file is damaged, or crashes Arrow.
    """
    return _value(source, "columns", one_column(required)).names


def _value(source: Source, about: About, columns: Columns) -> Value:
    with _parser(source, None) as parser:
        parser.send(Ask(file=_file(source), about=about, columns=columns))
        reply, _ = parser.answer()
        assert isinstance(reply, Value)
        return reply


def one_column(name: str) -> Columns:
    """Return a request for one column of any type."""
    return Columns(names=[name], optional=[], text=None, whole=False)


def _columns(fields: Fields | Columns) -> Columns:
    if isinstance(fields, Columns):
        return fields
    return Columns(
        names=[*(fields.texts or ()), *fields.extra],
        optional=sorted(fields.may_be_missing),
        text=None if fields.rendering else fields.text,
        whole=fields.wanted is None,
    )


def _file(source: Source, block_bytes: int = 0) -> TableFile:
    return TableFile(
        format=source.format,
        path=str(source.path or ""),
        num_bytes=source.num_bytes,
        block_bytes=block_bytes,
    )


@contextmanager
def _parser(source: Source, raw: BinaryIO | None) -> Iterator[_Parser]:
    """Provide a process for one file: an idle one or a new one.

    Remote files are opened here, where their bytes are fetched; the process opens local files.
    """
    with source.open() if raw is None and source.is_distant else nullcontext(raw) as file:
        child = _idle.pop() if _idle else None
        if child is None or child.has_ended:
            child = Child(PROGRAM)
        parser = _Parser(child, source.where, file)
        try:
            yield parser
        finally:
            if parser.is_idle and len(_idle) < MAX_IDLE:
                _idle.append(child)
            else:
                child.end()


class _Parser:
    """A process while it parses a file."""

    def __init__(self, child: Child, where: str, raw: BinaryIO | None) -> None:
        self._child, self._where, self._raw = child, where, raw
        self.is_idle = True
        """Whether the process waits for a command."""

    def send(self, command: Command, payload: bytes = b"") -> None:
        """Send a command; if the process has died, `answer` reports it."""
        self.is_idle = False
        self._child.send(command, payload)

    def answer(self) -> tuple[Reply, bytearray]:
        """Wait for the answer to a command, and send the process the bytes it requests."""
        while True:
            try:
                reply, payload = self._child.receive()
            except ChildEnded as error:
                raise self._death(error) from None
            match reply:
                case Wanted(start=start, num_bytes=num_bytes):
                    assert self._raw is not None
                    self._raw.seek(start)
                    self.send(Bytes(), self._raw.read(num_bytes))
                    continue
                case Announced(columns=columns, block_bytes=block_bytes):
                    if isinstance(file := cast(object, self._raw), RangeFile):
                        file.read_ahead(columns, block_bytes)
                    continue
                case Failed(error=failure, errno=number):
                    self.is_idle = True
                    if number:
                        raise OSError(number, failure.why)
                    raise msgspec.structs.replace(failure, where=self._where).rebuild()
            self.is_idle = not isinstance(reply, Rows)
            return reply, payload

    def _death(self, ended: ChildEnded) -> TokenmillError:
        if ended.signal in CRASHES:
            why = f"Arrow crashed while reading the file: {ended.signal.name}"
            return damaged(self._where, why)
        if ended.signal:
            return EngineError(
                "the process that parses an input was killed",
                where=self._where,
                why=ended.why,
                hint="lower --workers and run the same command again; it resumes where it stopped",
            )
        why = f"{ended.why}; see its message above"
        return InternalError(ended.what, where=self._where, why=why)
