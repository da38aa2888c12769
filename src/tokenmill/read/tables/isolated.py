"""Parquet and Arrow files, read through processes that a damaged file may crash.

Arrow's readers are C++ that trusts what a file says of itself. Here they run in a process of their
own: a crash there is a DamagedInputError here, and the next file is read by a new process. What
comes back has been validated and is written anew, so it can be taken as it is.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from tokenmill.errors import EngineError, InternalError, TokenmillError, UserError
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields
from tokenmill.read.hub.access import BLOCK_BYTES
from tokenmill.read.tables.messages import (
    Announced,
    Bytes,
    Channel,
    CheckColumns,
    Command,
    Enough,
    Failed,
    GroupSizes,
    More,
    ReadRows,
    Refused,
    Reply,
    Rows,
    TableFile,
    TextSize,
    Value,
    Wanted,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.read.hub.remote_file import RemoteFile
    from tokenmill.read.sources import Source

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
PIPE_BYTES = 1 << 20
ENVIRONMENT = {
    "ARROW_IO_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # The system's allocator notices more of what a damaged file may do.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


class Piece(NamedTuple):
    """Some rows of a file."""

    first: int
    """The number of the first row."""
    batch: pa.RecordBatch
    """The wanted columns, named as they were asked for: the text, then the others."""
    num_bytes: int
    """What the rows took in the file, decompressed."""


def check_schema(source: Source, fields: Fields) -> None:
    """Raise a UserError if a field is missing, or if the text is not a column of strings."""
    _ask(source, CheckColumns(file=_file(source), columns=_columns(fields)))


def group_sizes(source: Source) -> list[int]:
    """Bytes of each row group (Parquet) or record batch (Arrow file), all columns together."""
    return _ask(source, GroupSizes(file=_file(source)))


def text_size(source: Source, fields: Fields) -> int:
    """About how many bytes of text a file holds."""
    return _ask(source, TextSize(file=_file(source), column=fields.text))[0]


def iter_pieces(
    source: Source,
    fields: Fields,
    groups: range | None,
    batch_bytes: int,
    raw: BinaryIO | None = None,
) -> Iterator[Piece]:
    """Yield the rows of some row groups (Parquet) or record batches (Arrow file) in order.

    `raw` is the opened file, for a caller that wants to know how far it was read.

    Raises:
        DamagedInputError: the file is damaged, or crashes Arrow.
        UserError: a field is missing, or the text is not a column of strings.
        OSError: the file cannot be read.
    """
    import pyarrow as pa

    # Whoever wants little of a distant file fetches little.
    block_bytes = min(batch_bytes * 8, BLOCK_BYTES) if source.streamed else 0
    command = ReadRows(
        file=_file(source),
        columns=_columns(fields),
        groups=None if groups is None else (groups.start, groups.stop),
        batch_bytes=batch_bytes,
        block_bytes=block_bytes,
    )
    with _parser(source) as parser, _opened(source, raw) as file:
        parser.send(command)
        ahead = False  # the first rows are often the only ones that are wanted
        while True:
            reply, payload = parser.answer(file)
            if not isinstance(reply, Rows):
                break
            if raw and not source.streamed:
                raw.seek(reply.position)
            if ahead:
                parser.send(More())
            batch = pa.ipc.open_stream(pa.py_buffer(payload)).read_next_batch()
            try:
                yield Piece(reply.first, batch, reply.num_bytes)
            except GeneratorExit:
                if not ahead:  # else the process is ended: it may take long for what comes next
                    parser.send(Enough())
                    with contextlib.suppress(TokenmillError, OSError):
                        parser.answer(file)
                raise
            if not ahead:
                parser.send(More())
            ahead = not source.streamed


def _columns(fields: Fields) -> list[str]:
    return [fields.text, *fields.extra]


def _file(source: Source) -> TableFile:
    path = "" if source.streamed else str(source.path)
    return TableFile(
        where=source.where, format=source.format, path=path, num_bytes=source.num_bytes
    )


def _ask(source: Source, command: Command) -> list[int]:
    with _parser(source) as parser, _opened(source, None) as raw:
        parser.send(command)
        reply, _ = parser.answer(raw)
        assert isinstance(reply, Value)
        return reply.numbers


@contextmanager
def _opened(source: Source, raw: BinaryIO | None) -> Iterator[BinaryIO | None]:
    """A file of the Hub, opened here, where its bytes are fetched. Others are opened there."""
    if raw is None and source.streamed:
        with source.open() as file:
            yield file
    else:
        yield raw


class _Parser:
    """A process that parses files, one after another."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            # -P: no module is looked for in the folder where the command happens to be run.
            [sys.executable, "-P", "-m", "tokenmill.read.tables.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C is for this process, which ends the other
            bufsize=0,
            pipesize=PIPE_BYTES,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._channel = Channel(self._popen.stdout.fileno(), self._popen.stdin.fileno(), Reply)
        self.source: Source | None = None
        """Whose file it parses."""
        self.is_idle = True

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def send(self, command: Command, payload: bytes = b"") -> None:
        """Send a command; if the process has died, its answer says so."""
        self.is_idle = False
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(command, payload)

    def answer(self, raw: BinaryIO | None) -> tuple[Reply, bytearray]:
        """The answer to a command; until it comes, the process is given the bytes that it needs."""
        while True:
            try:
                reply, payload = self._channel.receive()
            except EOFError:
                raise self._death() from None
            match reply:
                case Wanted(start=start, num_bytes=num_bytes):
                    assert raw is not None
                    raw.seek(start)
                    self.send(Bytes(), raw.read(num_bytes))
                    continue
                case Announced(columns=columns, block_bytes=block_bytes):
                    cast("RemoteFile", raw).read_ahead(columns, block_bytes)
                    continue
                case Failed():
                    self.is_idle = True
                    raise self._failure(reply)
                case Refused(errno=number, text=text):
                    self.is_idle = True
                    raise OSError(number, text)
            self.is_idle = not isinstance(reply, Rows)
            return reply, payload

    def _failure(self, failed: Failed) -> TokenmillError:
        assert self.source is not None
        if failed.is_damage:
            return damaged(self.source.where, failed.why)
        return UserError(failed.what, where=self.source.where, why=failed.why, hint=failed.hint)

    def _death(self) -> TokenmillError:
        assert self.source is not None
        where, code = self.source.where, self._popen.wait()
        if -code in CRASHES:
            return damaged(where, f"Arrow crashes while it reads the file: {_signal_name(-code)}")
        if code < 0:
            return EngineError(
                "the process that parses an input was killed",
                where=where,
                why=f"{_signal_name(-code)}; SIGKILL usually means that memory ran out",
                hint="lower --workers, and run the same command again: it resumes",
            )
        why = f"exit code {code}; its own message stands above"
        return InternalError("the process that parses an input failed", where=where, why=why)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            stream.close()

    def forget(self) -> None:
        """In a fork of this process: let go of the pipes, so that the other process can end."""
        self._popen.returncode = 0
        self.end()


_lock = threading.Lock()
_idle: list[_Parser] = []
_parsers: weakref.WeakSet[_Parser] = weakref.WeakSet()
MAX_IDLE = 1


def parser_pids() -> set[int]:
    """The processes that parse files for this one."""
    with _lock:
        return {parser.pid for parser in _parsers}


@contextmanager
def _parser(source: Source) -> Iterator[_Parser]:
    """A process for one file at a time: one that waits, or a new one."""
    with _lock:
        parser = _idle.pop() if _idle else None
    if parser is None or parser.has_ended:
        parser = _Parser()
        with _lock:
            _parsers.add(parser)
    parser.source = source
    try:
        yield parser
    finally:
        with _lock:
            keep = parser.is_idle and len(_idle) < MAX_IDLE
            if keep:
                _idle.append(parser)
            else:
                _parsers.discard(parser)
        if not keep:
            parser.end()


def _end_all() -> None:
    for parser in list(_parsers):
        parser.end()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    for parser in list(_parsers):
        parser.forget()
    _idle.clear()
    _parsers.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)


def _signal_name(number: int) -> str:
    return signal.Signals(number).name
