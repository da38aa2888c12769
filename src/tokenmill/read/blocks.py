"""Byte streams to blocks of whole records, for every format whose records end at a delimiter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from tokenmill.read.compression import read_exactly


def iter_blocks(
    stream: BinaryIO, start: int, stop: int | None, delimiter: bytes, block_bytes: int
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, block) for the records that begin in [start, stop) of `stream`.

    A record belongs to the range that holds its first byte, so neighbouring ranges share no
    record and lose none. `stream` must stand at `max(start - len(delimiter), 0)`. A block is as
    long as one record where a record is longer than `block_bytes`.

    With newlines, "aa\nbb\ncc" from 1 to 4 gives the one block (3, "bb\n").
    """
    offset = max(start - len(delimiter), 0)
    pending, skipping = b"", start > 0
    while True:
        piece = read_exactly(stream, max(block_bytes, len(pending)))
        data = pending + piece if pending else piece
        if skipping:
            found = data.find(delimiter)
            if found < 0 and piece:
                offset, pending = offset + len(data) - (keep := len(delimiter) - 1), data[-keep:]
                pending = pending if keep else b""
                continue
            cut = len(data) if found < 0 else found + len(delimiter)
            offset, data, skipping = offset + cut, data[cut:], False
        end, finished = _end_of_records(data, offset, stop, delimiter, final=not piece)
        if end:
            yield offset, data[:end]
        if finished:
            return
        offset, pending = offset + end, data[end:]


def _end_of_records(
    data: bytes, offset: int, stop: int | None, delimiter: bytes, *, final: bool
) -> tuple[int, bool]:
    """Where the whole records of `data` that begin before `stop` end, and whether they are all."""
    if stop is not None:
        if offset >= stop:
            return 0, True
        first = data.find(delimiter, max(stop - len(delimiter) - offset, 0))
        if first >= 0:
            return first + len(delimiter), True
    if final:
        return len(data), True
    last = data.rfind(delimiter)
    return (last + len(delimiter) if last >= 0 else 0), False


def overlaps_itself(delimiter: bytes) -> bool:
    r"""Whether some end of the delimiter is also a start of it, as in "\n\n".

    Such a delimiter can only be found from the start of a file, not from its middle.
    """
    return any(delimiter.endswith(delimiter[:size]) for size in range(1, len(delimiter)))
