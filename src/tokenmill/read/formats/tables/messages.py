"""Messages between a process and its parser process for tables."""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenmill.core.error_records import ErrorRecord

BATCHES_PER_DECODE = 8
"""Batches decoded per call and then sliced, because each call to Parquet is expensive."""


class TableFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file with a table."""

    format: str
    """Registered name of the format."""
    path: str
    """"" for a remote file: the parser requests its bytes with `Wanted`."""
    num_bytes: int
    block_bytes: int = 0
    """For a remote file: the number of bytes per request."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The requested columns of a file."""

    names: list[str]
    """Names or dotted paths."""
    optional: list[str]
    """Columns that may be missing."""
    text: str | None
    """The column that must contain strings, if any."""
    whole: bool
    """Whether all other columns of the file are requested, too."""


About = Literal["columns", "groups", "count", "totals"]


class Ask(msgspec.Struct, tag="ask", kw_only=True):
    """To the parser: answer with a Value.

    "columns": nothing, but fail if a column is missing or is not text.
    "groups": bytes and rows of each row group or record batch, in order.
    "count": the number of row groups or record batches; 1 for a stream.
    "totals": the approximate bytes of text and the number of rows.
    """

    file: TableFile
    about: About
    columns: Columns


class ReadRows(msgspec.Struct, tag="read", kw_only=True):
    """To the parser: answer with Rows, and again for each `Next`, then with End."""

    file: TableFile
    columns: Columns
    groups: tuple[int, int] | None
    """Row groups or record batches [start, stop); None for all."""
    first_row: int | None
    """The number of their first row, if known."""
    batch_bytes: int


class Next(msgspec.Struct, tag="next"):
    """To the parser: send the next rows, or no further ones."""

    more: bool


class Bytes(msgspec.Struct, tag="bytes"):
    """To the parser: the requested bytes."""


class Value(msgspec.Struct, tag="value"):
    """From the parser: the answer."""

    numbers: list[int]
    names: list[str]
    """Of all columns."""


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


class Failed(msgspec.Struct, tag="failed"):
    """From the parser: the file is damaged, or does not match the user's options."""

    error: ErrorRecord
    errno: int = 0
    """If the file system refused a read: the number of its error, which `error.why` describes."""


Command = Ask | ReadRows | Next | Bytes
Reply = Value | Rows | End | Wanted | Announced | Failed
