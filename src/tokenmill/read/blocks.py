"""Byte streams to blocks of whole records, for every format whose records end at a delimiter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

BOM = b"\xef\xbb\xbf"
"""A byte order mark, which the first record of a file may be behind."""


def iter_blocks(
    stream: BinaryIO, start: int, stop: int | None, delimiter: bytes, block_bytes: int
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, block) for the records that begin in [start, stop) of `stream`.

    A record belongs to the range that holds its first byte, so neighbouring ranges share no
    record and lose none. `stream` must stand at `max(start - len(delimiter), 0)`. A block is as
    long as one record where a record is longer than `block_bytes`.

    With newlines, "aa\nbb\ncc" from 1 to 4 gives the one block (3, "bb\n").
    """
    window = Window(stream, max(start - len(delimiter), 0), block_bytes)
    skipping, finished = start > 0, False
    while not finished:
        final = window.fill()
        if skipping:
            first = window.end_of_first(delimiter, 0)
            skipping = not (first or final)
            begun = 0 if final else len(delimiter) - 1  # bytes that may begin a delimiter
            window.drop(first or max(window.filled - begun, 0))
            if skipping:
                continue
        offset = window.offset
        end, finished = _end_of_records(window, stop, delimiter, final=final)
        if end:
            yield offset, window.take(end)


def _end_of_records(
    window: Window, stop: int | None, delimiter: bytes, *, final: bool
) -> tuple[int, bool]:
    """Where the whole records of the window that begin before `stop` end; whether they are all."""
    if stop is not None:
        if window.offset >= stop:
            return 0, True
        last = window.end_of_first(delimiter, max(stop - len(delimiter) - window.offset, 0))
        if last:
            return last, True
    return (window.filled, True) if final else (window.end_of_last(delimiter), False)


class Window:
    """The bytes of a stream from `offset` on, in memory that is used again for every block."""

    def __init__(self, stream: BinaryIO, offset: int, size: int) -> None:
        self._stream = stream
        self.buffer = bytearray(size)
        self.offset = offset
        self.filled = 0

    def fill(self) -> bool:
        """Read until the window is full, and say whether the stream has ended.

        A window that no record fits into becomes twice as large.
        """
        if self.filled == len(self.buffer):
            self.buffer += bytes(self.filled)
        with memoryview(self.buffer) as view:
            while self.filled < len(view):
                count = self._stream.readinto(view[self.filled :])  # type: ignore[attr-defined]
                if not count:
                    return True
                self.filled += count
        return False

    def end_of_first(self, delimiter: bytes, start: int) -> int:
        """The place after the first delimiter from `start` on, or 0."""
        found = self.buffer.find(delimiter, start, self.filled)
        return found + len(delimiter) if found >= 0 else 0

    def end_of_last(self, delimiter: bytes) -> int:
        """The place after the last delimiter, or 0."""
        if overlaps_itself(delimiter):
            # From the right, "\n\n" would be found one byte later in "\n\n\n" than from the left,
            # and records would depend on where blocks end.
            return self.filled - len(self.buffer[: self.filled].split(delimiter)[-1])
        found = self.buffer.rfind(delimiter, 0, self.filled)
        return found + len(delimiter) if found >= 0 else 0

    def take(self, end: int) -> bytes:
        """The bytes up to `end`, which leave the window."""
        with memoryview(self.buffer) as view:
            block = bytes(view[:end])
        self.drop(end)
        return block

    def drop(self, end: int) -> None:
        """Bytes up to `end` leave the window."""
        with memoryview(self.buffer) as view:
            view[: self.filled - end] = view[end : self.filled]
        self.filled -= end
        self.offset += end


def overlaps_itself(delimiter: bytes) -> bool:
    r"""Whether some end of the delimiter is also a start of it, as in "\n\n".

    Such a delimiter can only be found from the start of a file, not from its middle.
    """
    return any(delimiter.endswith(delimiter[:size]) for size in range(1, len(delimiter)))
