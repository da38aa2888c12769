"""The parser process for tables; it reads commands from stdin and writes answers to stdout."""

from __future__ import annotations

import io
import os
import queue
import resource
import signal
import sys
import threading
from typing import Any, BinaryIO, cast

import pyarrow as pa

from tokenmill.core.errors import TokenmillError, UserError
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.formats.tables.format import TableFormat
from tokenmill.read.formats.tables.messages import (
    Announced,
    Bytes,
    Channel,
    CheckColumns,
    Command,
    CountGroups,
    End,
    Enough,
    Failed,
    GroupSizes,
    ReadRows,
    Refused,
    Rows,
    TableFile,
    Totals,
    Value,
    Wanted,
)
from tokenmill.read.formats.tables.record_batches import check_columns, iter_rows
from tokenmill.read.formats.tables.table import Table
from tokenmill.read.places.range_file import RangeFile

DAMAGE = (
    pa.ArrowException,
    ArithmeticError,
    LookupError,
    MemoryError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
)
"""Exceptions that Arrow raises for damaged files, and Python for their values."""


class Parser:
    """Carries out commands, one after another."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._incoming: queue.SimpleQueue[tuple[Any, bytearray]] = queue.SimpleQueue()

    def run(self) -> None:
        """Work until the other process ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            command, _ = self._incoming.get()
            try:
                self._carry_out(command)
            except TokenmillError as error:
                is_damage = not isinstance(error, UserError)
                self._fail(is_damage, error.what, error.why, error.hint)
            except OSError as error:
                if error.errno is not None:
                    self._channel.send(Refused(error.errno, error.strerror or str(error)))
                else:
                    self._fail(True, "", str(error), "")
            except DAMAGE as error:
                is_plain = isinstance(error, pa.ArrowException)
                if isinstance(error, pa.ArrowNotImplementedError):
                    error.args = (f"damaged, or not supported by Arrow {pa.__version__}: {error}",)
                why = str(error) if is_plain else f"{type(error).__name__}: {error}"
                self._fail(True, "", why, "")

    def _listen(self) -> None:
        while True:
            try:
                self._incoming.put(self._channel.receive())
            except EOFError:
                os._exit(0)

    def _fail(self, is_damage: bool, what: str, why: str, hint: str) -> None:
        self._channel.send(Failed(is_damage=is_damage, what=what, why=why, hint=hint))

    def _carry_out(self, command: Command) -> None:
        match command:
            case CheckColumns(file=file):
                with self._open(file) as raw:
                    check_columns(_table(raw, file).schema, command)
                self._channel.send(Value([]))
            case GroupSizes(file=file):
                with self._open(file) as raw:
                    groups = _table(raw, file).groups()
                self._channel.send(Value([number for group in groups for number in group]))
            case CountGroups(file=file):
                with self._open(file) as raw:
                    number = _table(raw, file).num_groups
                self._channel.send(Value([number]))
            case Totals(file=file, column=column):
                with self._open(file) as raw:
                    table = _table(raw, file)
                    size = table.text_bytes(column)
                    num_rows = sum(rows for _, rows in table.groups())
                self._channel.send(Value([size, num_rows]))
            case ReadRows():
                self._read(command)

    def _read(self, command: ReadRows) -> None:
        def announce(columns: list[list[tuple[int, int]]]) -> None:
            self._channel.send(Announced(columns, command.file.block_bytes))

        with self._open(command.file) as raw:
            table = _table(raw, command.file)
            for first, num_bytes, batch in iter_rows(table, command, announce):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                rows = Rows(first=first, num_bytes=num_bytes, position=raw.tell())
                self._channel.send(rows, memoryview(sink.getvalue()))
                if isinstance(self._incoming.get()[0], Enough):
                    break
        self._channel.send(End())

    def _open(self, file: TableFile) -> BinaryIO:
        return open(file.path, "rb") if file.path else _AskedFile(file.num_bytes, self._ask)  # type: ignore[return-value]

    def _ask(self, start: int, num_bytes: int) -> bytearray:
        self._channel.send(Wanted(start, num_bytes))
        message, data = self._incoming.get()
        assert isinstance(message, Bytes)
        return data


def _table(raw: BinaryIO, file: TableFile) -> Table:
    return cast(TableFormat, FORMATS[file.format]).open(raw, file)


class _AskedFile(RangeFile):
    """A file with bytes that the other process provides."""

    def __init__(self, num_bytes: int, ask: Any) -> None:
        super().__init__(num_bytes)
        self._ask = ask

    def read(self, size: int = -1) -> bytes:
        start = min(self._position, self._num_bytes)
        stop = self._num_bytes if size < 0 else min(start + size, self._num_bytes)
        self._position = stop
        return bytes(self._ask(start, stop - start)) if stop > start else b""


def main() -> None:
    """Parse files until stdin ends."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # the other process handles them and ends this one
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # crashes are expected; write no core files
    incoming = io.FileIO(os.dup(sys.stdin.fileno()), "rb")
    outgoing = io.FileIO(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(
        sys.stderr.fileno(), sys.stdout.fileno()
    )  # output of libraries must not mix with answers
    Parser(Channel(incoming, outgoing, Command)).run()
