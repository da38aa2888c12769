"""A pool of parser processes for Parquet and Arrow files, started when needed and reused."""

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
from io import FileIO
from typing import TYPE_CHECKING, BinaryIO, cast

from tokenmill.core.errors import EngineError, InternalError, TokenmillError, UserError
from tokenmill.read.compression import damaged
from tokenmill.read.formats.tables.messages import (
    Announced,
    Bytes,
    Channel,
    Command,
    Failed,
    Refused,
    Reply,
    Rows,
    Wanted,
)
from tokenmill.read.places.range_file import RangeFile

if TYPE_CHECKING:
    from tokenmill.read.sources import Source

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE)
PIPE_BYTES = 1 << 20
PROGRAM = """
import sys
sys.modules["numpy"] = None  # Arrow can do without: saves 10 MB and a third of the start
from tokenmill.read.formats.tables.process import main
main()
"""
ENVIRONMENT = {
    "ARROW_IO_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # The system's allocator detects more memory errors that a damaged file can cause.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    # Batches are allocated and freed often: keep their pages to avoid new page faults.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
MAX_IDLE = 1
"""Idle processes kept for the next file; each takes about 25 MB."""

_lock = threading.RLock()  # reentrant: the collector may close a reading that holds a process
_idle: list[ParserProcess] = []
_parsers: weakref.WeakSet[ParserProcess] = weakref.WeakSet()


def parser_pids() -> set[int]:
    """Return the ids of this process's parser processes."""
    with _lock:
        return {parser.pid for parser in _parsers}


@contextmanager
def borrowed_parser(source: Source) -> Iterator[ParserProcess]:
    """Provide a process for one file at a time: an idle one or a new one."""
    with _lock:
        parser = _idle.pop() if _idle else None
    if parser is None or parser.has_ended:
        parser = ParserProcess()
        with _lock:
            _parsers.add(parser)
    parser.where = source.where
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


class ParserProcess:
    """A process that parses files, one after another."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            # -P: import no modules from the current folder.
            [sys.executable, "-P", "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # Ctrl-C goes to this process, which ends the other
            bufsize=0,
            pipesize=PIPE_BYTES,
        )
        self._stdin = cast(FileIO, self._popen.stdin)
        self._stdout = cast(FileIO, self._popen.stdout)
        self._channel = Channel(self._stdout, self._stdin, Reply)
        self.where = ""
        """Name of the file being parsed."""
        self.is_idle = True
        """Whether the process waits for a command."""

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended: the system may kill it while it is idle."""
        return self._popen.poll() is not None

    def send(self, command: Command, payload: bytes = b"") -> None:
        """Send a command; if the process has died, `answer` reports it."""
        self.is_idle = False
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(command, payload)

    def answer(self, raw: BinaryIO | None) -> tuple[Reply, bytearray]:
        """Wait for the answer to a command, and send the process the bytes it requests."""
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
                    if isinstance(file := cast(object, raw), RangeFile):
                        file.read_ahead(columns, block_bytes)
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
        if failed.is_damage:
            return damaged(self.where, failed.why)
        return UserError(failed.what, where=self.where, why=failed.why, hint=failed.hint)

    def _death(self) -> TokenmillError:
        where, code = self.where, self._popen.wait()
        if -code in CRASHES:
            return damaged(where, f"Arrow crashed while reading the file: {_signal_name(-code)}")
        if code < 0:
            return EngineError(
                "the process that parses an input was killed",
                where=where,
                why=f"{_signal_name(-code)}; SIGKILL usually means that memory ran out",
                hint="lower --workers and run the same command again; it resumes where it stopped",
            )
        why = f"exit code {code}; see its message above"
        return InternalError("the process that parses an input failed", where=where, why=why)

    def end(self) -> None:
        """Kill the process."""
        self._popen.kill()
        self._popen.wait()
        self._stdin.close()
        self._stdout.close()

    def forget(self) -> None:
        """In a fork of this process: close the pipes, so that the other process can end."""
        self._popen.returncode = 0
        self.end()


def end_idle_parsers() -> None:
    """End idle processes to free their memory."""
    with _lock:
        while _idle:
            parser = _idle.pop()
            _parsers.discard(parser)
            parser.end()


def _end_all() -> None:
    for parser in list(_parsers):
        parser.end()


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()
    for parser in list(_parsers):
        parser.forget()
    _idle.clear()
    _parsers.clear()


def _signal_name(number: int) -> str:
    return signal.Signals(number).name


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork)
