"""What a process says to the one that parses its tables."""

from __future__ import annotations

import struct
from io import FileIO
from typing import Any

import msgspec

BATCHES_PER_DECODE = 8
"""Parquet has a price for every call, so several batches are decoded at once and then sliced."""
_SIZES = struct.Struct("<QQ")


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that holds a table."""

    format: str
    """Its registered name."""
    path: str
    """"" for a file that is not on this machine: the parser asks for its bytes with `Wanted`."""
    num_bytes: int
    block_bytes: int = 0
    """Of a file that is not on this machine: what to ask for at a time."""


class CheckColumns(msgspec.Struct, tag="check", kw_only=True):
    """To the parser: answer with a Value, or fail if a column is missing or holds no text."""

    file: TableFile
    columns: list[str]
    optional: list[str]
    """Those that may be missing."""
    text: str | None
    """The one of them that must hold strings, if one must."""
    whole: bool = False
    """Whether all other columns of the file are wanted, too."""


class GroupSizes(msgspec.Struct, tag="groups", kw_only=True):
    """To the parser: answer with bytes and rows of each row group or record batch, in turn."""

    file: TableFile


class CountGroups(msgspec.Struct, tag="count", kw_only=True):
    """To the parser: answer with the number of row groups or record batches."""

    file: TableFile


class Totals(msgspec.Struct, tag="totals", kw_only=True):
    """To the parser: answer with the bytes of text, about, and the number of rows."""

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
    """Row groups or record batches [start, stop); None: all."""
    first_row: int | None
    """The number of their first row, if that is known."""
    batch_bytes: int


class More(msgspec.Struct, tag="more"):
    """To the parser: the next rows, please."""


class Enough(msgspec.Struct, tag="enough"):
    """To the parser: no further rows."""


class Bytes(msgspec.Struct, tag="bytes"):
    """To the parser: what it wanted."""


class Value(msgspec.Struct, tag="value"):
    """From the parser: the answer."""

    numbers: list[int]


class Rows(msgspec.Struct, tag="rows", kw_only=True):
    """From the parser: some rows of the wanted columns, as an Arrow stream of one record batch."""

    first: int
    num_bytes: int
    """What the rows took in the file, decompressed."""
    position: int
    """How far the file was read."""


class End(msgspec.Struct, tag="end"):
    """From the parser: there are no further rows."""


class Wanted(msgspec.Struct, tag="wanted"):
    """From the parser: it needs bytes of a file that is not on this machine."""

    start: int
    num_bytes: int


class Announced(msgspec.Struct, tag="announced"):
    """From the parser: the ranges [start, stop) of each column that it will want."""

    columns: list[list[tuple[int, int]]]
    block_bytes: int


class Failed(msgspec.Struct, tag="failed", kw_only=True):
    """From the parser: the file is damaged, or is not what the user says."""

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
    """Sends and receives messages: sizes, a message as JSON, bytes that belong to it."""

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
        """The next message and its bytes.

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
