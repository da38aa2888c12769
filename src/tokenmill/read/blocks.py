"""Cutting byte streams into blocks of whole records, for formats with a record delimiter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

BOM = b"\xef\xbb\xbf"
"""A byte order mark, which can precede the first record of a file."""


def iter_blocks(
    stream: BinaryIO, start: int, stop: int | None, delimiter: bytes, block_bytes: int
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, block) for the records that begin in [start, stop) of `stream`.

    A record belongs to the range that contains its first byte, so adjacent ranges share no record
    and miss none. `stream` must be positioned at `max(start - len(delimiter), 0)`. If a record is
    longer than `block_bytes`, its block is as long as the record.

    With newlines, "aa\nbb\ncc" from 1 to 4 gives one block, (3, "bb\n").
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
    """Return the end of the whole records that start before `stop`, and whether these are all."""
    if stop is not None:
        if window.offset >= stop:
            return 0, True
        last = window.end_of_first(delimiter, max(stop - len(delimiter) - window.offset, 0))
        if last:
            return last, True
    return (window.filled, True) if final else (window.end_of_last(delimiter), False)


class Window:
    """A buffer with the bytes of a stream from `offset`, reused for every block."""

    def __init__(self, stream: BinaryIO, offset: int, size: int) -> None:
        self._stream = stream
        self.buffer = bytearray(size)
        self.offset = offset
        self.filled = 0

    def fill(self) -> bool:
        """Read until the window is full, and return whether the stream has ended.

        If the window is already full, because no record fits, it doubles in size.
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
        """Return the place after the first delimiter at or after `start`, or 0."""
        found = self.buffer.find(delimiter, start, self.filled)
        return found + len(delimiter) if found >= 0 else 0

    def end_of_last(self, delimiter: bytes) -> int:
        """Return the place after the last delimiter, or 0."""
        if overlaps_itself(delimiter):
            # A search from the right finds "\n\n" in "\n\n\n" one byte later than a search from the
            # left, so records would depend on where blocks end.
            return self.filled - len(self.buffer[: self.filled].split(delimiter)[-1])
        found = self.buffer.rfind(delimiter, 0, self.filled)
        return found + len(delimiter) if found >= 0 else 0

    def take(self, end: int) -> bytes:
        """Remove the bytes up to `end` from the window and return them."""
        with memoryview(self.buffer) as view:
            block = bytes(view[:end])
        self.drop(end)
        return block

    def drop(self, end: int) -> None:
        """Remove the bytes up to `end` from the window."""
        with memoryview(self.buffer) as view:
            view[: self.filled - end] = view[end : self.filled]
        self.filled -= end
        self.offset += end


def overlaps_itself(delimiter: bytes) -> bool:
    r"""Return whether a suffix of the delimiter is also a prefix of it, as in "\n\n".

    Such a delimiter can only be found from the start of a file, not from its middle.
    """
    return any(delimiter.endswith(delimiter[:size]) for size in range(1, len(delimiter)))
