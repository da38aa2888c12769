"""Messages between a process and its parser process for tables."""

from __future__ import annotations

import struct
from io import FileIO
from typing import Any

import msgspec

BATCHES_PER_DECODE = 8
"""Batches decoded per call and then sliced, because each call to Parquet is expensive."""
_SIZES = struct.Struct("<QQ")


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with a table."""

    format: str
    """Registered name of the format."""
    path: str
    """"" for a remote file: the parser requests its bytes with `Wanted`."""
    num_bytes: int
    block_bytes: int = 0
    """For a remote file: the number of bytes per request."""


class CheckColumns(msgspec.Struct, tag="check", kw_only=True):
    """To the parser: answer with a Value, or fail if a column is missing or is not text."""

    file: TableFile
    columns: list[str]
    optional: list[str]
    """Columns that may be missing."""
    text: str | None
    """The column that must contain strings, if any."""
    whole: bool = False
    """Whether all other columns of the file are requested, too."""


class GroupSizes(msgspec.Struct, tag="groups", kw_only=True):
    """To the parser: answer with bytes and rows of each row group or record batch, in order."""

    file: TableFile


class CountGroups(msgspec.Struct, tag="count", kw_only=True):
    """To the parser: answer with the number of row groups or record batches."""

    file: TableFile


class Totals(msgspec.Struct, tag="totals", kw_only=True):
    """To the parser: answer with the approximate bytes of text and the number of rows."""

    file: TableFile
    column: str


class ReadRows(msgspec.Struct, tag="read", kw_only=True):
    """To the parser: answer with Rows, one for each `More`, then with End."""

    file: TableFile
    columns: list[str]
    """Names or dotted paths."""
    optional: list[str]
    text: str | None
    whole: bool = False
    groups: tuple[int, int] | None
    """Row groups or record batches [start, stop); None for all."""
    first_row: int | None
    """The number of their first row, if known."""
    batch_bytes: int


class More(msgspec.Struct, tag="more"):
    """To the parser: send the next rows."""


class Enough(msgspec.Struct, tag="enough"):
    """To the parser: send no further rows."""


class Bytes(msgspec.Struct, tag="bytes"):
    """To the parser: the requested bytes."""


class Value(msgspec.Struct, tag="value"):
    """From the parser: the answer."""

    numbers: list[int]


class Rows(msgspec.Struct, tag="rows", kw_only=True):
    """From the parser: some rows of the wanted columns, as an Arrow stream of one record batch."""

    first: int
    num_bytes: int
    """Decompressed size of the rows in the file."""
    position: int
    """How many bytes of the file were read."""


class End(msgspec.Struct, tag="end"):
    """From the parser: there are no further rows."""


class Wanted(msgspec.Struct, tag="wanted"):
    """From the parser: a request for bytes of a remote file."""

    start: int
    num_bytes: int


class Announced(msgspec.Struct, tag="announced"):
    """From the parser: the ranges [start, stop) of each column that it will request."""

    columns: list[list[tuple[int, int]]]
    block_bytes: int


class Failed(msgspec.Struct, tag="failed", kw_only=True):
    """From the parser: the file is damaged, or does not match the user's options."""

    is_damage: bool
    what: str
    why: str
    hint: str


class Refused(msgspec.Struct, tag="refused"):
    """From the parser: the file system refused a read."""

    errno: int
    text: str


Command = CheckColumns | GroupSizes | CountGroups | Totals | ReadRows | More | Enough | Bytes
Reply = Value | Rows | End | Wanted | Announced | Failed | Refused


class Channel:
    """Sends and receives messages: sizes, a message as JSON, and its bytes."""

    def __init__(self, incoming: FileIO, outgoing: FileIO, kind: Any) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._decode = msgspec.json.Decoder(kind).decode

    def send(self, message: Command | Reply, payload: bytes | memoryview = b"") -> None:
        """Send a message and bytes.

        Raises:
            BrokenPipeError: the other process has ended, or the channel was closed.
        """
        line = msgspec.json.encode(message)
        self._write(_SIZES.pack(len(line), len(payload)) + line)
        self._write(payload)

    def receive(self) -> tuple[Any, bytearray]:
        """Receive the next message and its bytes.

        Raises:
            EOFError: the other process has ended, or the channel was closed.
        """
        line_bytes, payload_bytes = _SIZES.unpack(self._read(_SIZES.size))
        return self._decode(self._read(line_bytes)), self._read(payload_bytes)

    def _write(self, data: bytes | memoryview) -> None:
        rest = memoryview(data)
        if self._outgoing.closed:
            raise BrokenPipeError
        while rest:
            rest = rest[self._outgoing.write(rest) :]

    def _read(self, num_bytes: int) -> bytearray:
        data = bytearray(num_bytes)
        rest = memoryview(data)
        while rest:
            if self._incoming.closed or not (count := self._incoming.readinto(rest)):
                raise EOFError
            rest = rest[count:]
        return data
