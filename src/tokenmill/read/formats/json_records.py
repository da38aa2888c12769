"""Finding and decoding the JSON lines of a block, together or one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tokenmill.core.records import Int64Array, Rejection

LONG_RECORD_BYTES = 1 << 23
"""Larger than any block of several records."""
DECODED_BYTES = 1 << 18
"""Up to this size, Python checks UTF-8: for a sample, importing Arrow would take longer."""
_WHITE_SPACE = b" \t\r\n"


def decode_block(
    decoder: msgspec.json.Decoder[Any], body: bytes, starts: Int64Array, stops: Int64Array
) -> list[Any] | None:
    """Parse the records of a block in one call.

    Returns None if the result could differ from parsing line by line.
    """
    data = np.frombuffer(body, np.uint8)
    if not len(starts) or not (data[starts] == ord("{")).all():
        return None
    ends = stops - 1
    ends = ends - (data[ends] == ord("\n"))
    ends = ends - (data[ends] == ord("\r"))
    if not (data[ends] == ord("}")).all() or not _is_utf8(body):
        return None
    try:
        records: list[Any] = decoder.decode_lines(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return records if len(records) == len(starts) else None


def require_memory(num_bytes: int) -> None:
    """Raise a MemoryError if there is no memory for another copy of a long record.

    msgspec 0.22 crashes if it gets no memory for a string. The test allocation is never touched, so
    it is free.
    """
    if num_bytes >= LONG_RECORD_BYTES:
        bytes(num_bytes)


def line_bounds(body: bytes) -> tuple[Int64Array, Int64Array]:
    """Return the starts and stops of all lines, including line ends."""
    ends = []
    find, end = body.find, 0
    while end := find(b"\n", end) + 1:
        ends.append(end)
    if body and not body.endswith(b"\n"):
        ends.append(len(body))
    stops = np.array(ends, dtype=np.int64)
    starts = np.zeros_like(stops)
    starts[1:] = stops[:-1]
    return starts, stops


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    if len(data) <= DECODED_BYTES:
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
        return True
    import pyarrow as pa

    offsets = np.array([0, len(data)], np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class Lines(NamedTuple):
    """Lines that were parsed one by one."""

    records: list[Any]
    kept: list[int]
    """Line number of each record."""
    rejected: list[Rejection]
    blank_bytes: int


def parse_lines(
    parse_line: Callable[[bytes], Any],
    body: bytes,
    offset: int,
    source: int,
    starts: Int64Array,
    stops: Int64Array,
) -> Lines:
    """Parse line i in bytes [starts[i], stops[i]).

    `parse_line` returns a record, or (reason, detail) if it cannot be used.
    """
    records, kept, rejected, blank_bytes = [], [], [], 0
    for index, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        line = body[start:stop]
        if not line.strip(_WHITE_SPACE):
            blank_bytes += len(line)
            continue
        record = parse_line(line)
        if isinstance(record, tuple):
            reason, detail = record
            rejected.append(Rejection(source, offset + start, len(line), reason, detail, line))
        else:
            records.append(record)
            kept.append(index)
    return Lines(records, kept, rejected, blank_bytes)
