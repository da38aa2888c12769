"""The parser process for tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO, cast

import pyarrow as pa

from tokenmill.core.child import Parent
from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import TokenmillError
from tokenmill.read.compression import damaged
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.formats.tables.format import TableFormat
from tokenmill.read.formats.tables.messages import (
    Announced,
    Ask,
    Bytes,
    Command,
    End,
    Failed,
    ReadRows,
    Rows,
    TableFile,
    Value,
    Wanted,
)
from tokenmill.read.formats.tables.record_batches import Table, check_columns, iter_rows
from tokenmill.read.range_file import RangeFile

DAMAGE = (
    pa.ArrowException,
    ArithmeticError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
)
"""Exceptions that Arrow raises for damaged files, and Python for their values."""


def main() -> None:
    """Carry out commands, one after another."""
    parent = Parent(Command)
    while True:
        command, _ = parent.receive()
        try:
            with _opened(command.file, parent) as raw:
                table = cast(TableFormat, FORMATS[command.file.format]).open(raw, command.file)
                if isinstance(command, Ask):
                    parent.send(Value(_answer(command, table), table.schema.names))
                else:
                    _read(command, table, raw, parent)
        except TokenmillError as error:
            parent.send(Failed(ErrorRecord.of(error)))
        except DAMAGE as error:
            parent.send(_failure(error))


def _failure(error: Exception) -> Failed:
    why, number = str(error), 0
    if isinstance(error, OSError) and error.errno is not None:
        why, number = error.strerror or why, error.errno
    elif isinstance(error, pa.ArrowNotImplementedError):
        why = f"damaged, or not supported by Arrow {pa.__version__}: {why}"
    elif not isinstance(error, OSError | pa.ArrowException):
        why = f"{type(error).__name__}: {why}"
    return Failed(ErrorRecord.of(damaged("", why)), number)


def _answer(command: Ask, table: Table) -> list[int]:
    match command.about:
        case "columns":
            check_columns(table.schema, command.columns)
            return []
        case "groups":
            return [number for group in table.groups() for number in group]
        case "count":
            return [table.num_groups]
        case "totals":
            size = table.text_bytes(command.columns.text or "")
            return [size, sum(rows for _, rows in table.groups())]


def _read(command: ReadRows, table: Table, raw: BinaryIO, parent: Parent) -> None:
    def announce(columns: list[list[tuple[int, int]]]) -> None:
        parent.send(Announced(columns, command.file.block_bytes))

    for first, num_bytes, batch in iter_rows(table, command, announce):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        rows = Rows(first=first, num_bytes=num_bytes, position=raw.tell())
        parent.send(rows, memoryview(sink.getvalue()))
        if not parent.receive()[0].more:
            break
    parent.send(End())


def _opened(file: TableFile, parent: Parent) -> BinaryIO:
    if file.path:
        return open(file.path, "rb")

    def ask(start: int, num_bytes: int) -> bytearray:
        parent.send(Wanted(start, num_bytes))
        message, data = parent.receive()
        assert isinstance(message, Bytes)
        return data

    return cast(BinaryIO, _AskedFile(file.num_bytes, ask))


class _AskedFile(RangeFile):
    """A file with bytes that the other process provides."""

    def __init__(self, num_bytes: int, ask: Callable[[int, int], bytearray]) -> None:
        super().__init__(num_bytes)
        self._ask = ask

    def read(self, size: int = -1) -> bytes:
        start = min(self._position, self._num_bytes)
        stop = self._num_bytes if size < 0 else min(start + size, self._num_bytes)
        self._position = stop
        return bytes(self._ask(start, stop - start)) if stop > start else b""
