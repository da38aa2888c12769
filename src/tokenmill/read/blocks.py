"""Cutting byte streams into blocks of whole records, for formats with a record delimiter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

BOM = b"\xef\xbb\xbf"
"""A byte order mark, which can precede the first record of a file."""


T = TypeVar("T")


class OpenRecord(bytes):
    """A part of a record that is too long; the next block continues the record."""


def iter_blocks(
    stream: BinaryIO,
    start: int,
    stop: int | None,
    delimiter: bytes,
    block_bytes: int,
    max_record: int,
) -> Iterator[tuple[int, bytes]]:
    r"""Yield (offset, block) for the records that begin in [start, stop) of `stream`.

    A record belongs to the range that contains its first byte, so adjacent ranges share no record
    and miss none. `stream` must be positioned at `max(start - len(delimiter), 0)`. If a record is
    longer than `block_bytes`, its block is as long as the record. A record longer than `max_record`
    comes in several blocks, of which the first one has more than `max_record` bytes.

    With newlines, "aa\nbb\ncc" from 1 to 4 gives one block, (3, "bb\n").
    """
    kept = max(len(delimiter) - 1, 1)
    most = max_record + 1 + kept
    window = Window(stream, max(start - len(delimiter), 0), min(block_bytes, most))
    skipping = start > 0
    while skipping:
        final = window.fill()
        first = window.end_of_first(delimiter, 0)
        skipping = not (first or final)
        begun = 0 if final else len(delimiter) - 1  # bytes that may begin a delimiter
        window.drop(first or max(window.filled - begun, 0))
        if skipping:
            window.wanted += begun

    def find(final: bool) -> tuple[int, None, bool]:
        end, finished = _end_of_records(window, stop, delimiter, final=final)
        return end, None, finished

    for offset, block, _ in cut_blocks(
        window, most, kept, find, lambda *_: window.end_of_first(delimiter, 0)
    ):
        if block:
            yield offset, block


Find = Callable[[bool], tuple[int, T, bool]]
"""Called with whether the stream has ended; returns the end of the whole records in a window, what
is known of them, and whether no others follow.
"""


def cut_blocks(
    window: Window,
    most: int,
    kept: int,
    find: Find[T],
    end_of_long: Callable[[bytearray, int], int],
) -> Iterator[tuple[int, bytes, T | None]]:
    """Yield (offset, block, what `find` knows of it) until all records of a window are taken.

    No more than `most` bytes are kept in memory. A longer record comes in parts, of which nothing
    is known. `end_of_long` returns its end in the first bytes of a buffer, or 0; it needs the last
    `kept` bytes before those not yet seen.
    """
    finished = False
    while not finished:
        final = window.fill()
        end, found, finished = find(final)
        if end or finished:
            yield window.offset, window.take(end), found
        elif not window.grow(most):
            final, end = False, 0
            while not (final or end):
                yield window.offset, window.take(window.seen - kept, OpenRecord), None
                window.wanted += kept
                final = window.fill()
                end = end_of_long(window.buffer, window.seen)
            yield window.offset, window.take(end or window.seen), None


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
        self._ended = False
        self.size = size
        self.buffer = bytearray(size)
        self.offset = offset
        self.filled = 0
        self.wanted = size
        """Number of bytes in which the next record is looked for; `size` unless it is longer."""

    @property
    def seen(self) -> int:
        """Number of bytes in which to look for records; a longer record can have left more."""
        return min(self.wanted, self.filled)

    def fill(self) -> bool:
        """Read `wanted` bytes, and return whether the stream has ended before them."""
        if len(self.buffer) < self.wanted:
            self.buffer += bytes(self.wanted - len(self.buffer))
        elif self.filled <= self.wanted:
            del self.buffer[self.wanted :]
        with memoryview(self.buffer) as view:
            while self.filled < self.wanted and not self._ended:
                count = self._stream.readinto(view[self.filled :])  # type: ignore[attr-defined]
                self._ended = not count
                self.filled += count
        return self._ended and self.filled < self.wanted

    def grow(self, most: int) -> bool:
        """Want twice as many bytes, but at most `most`; return False if that is not more."""
        before, self.wanted = self.wanted, min(2 * self.wanted, most)
        return self.wanted > before

    def end_of_first(self, delimiter: bytes, start: int) -> int:
        """Return the place after the first delimiter at or after `start`, or 0."""
        found = self.buffer.find(delimiter, start, self.filled) if delimiter else -1
        return found + len(delimiter) if found >= 0 else 0

    def end_of_last(self, delimiter: bytes) -> int:
        """Return the place after the last delimiter, or 0."""
        if overlaps_itself(delimiter):
            # A search from the right finds "\n\n" in "\n\n\n" one byte later than a search from the
            # left, so records would depend on where blocks end.
            return self.filled - len(self.buffer[: self.filled].split(delimiter)[-1])
        found = self.buffer.rfind(delimiter, 0, self.filled) if delimiter else -1
        return found + len(delimiter) if found >= 0 else 0

    def take(self, end: int, kind: type[bytes] = bytes) -> bytes:
        """Remove the bytes up to `end` from the window and return them."""
        with memoryview(self.buffer) as view:
            block = kind(view[:end])
        self.drop(end)
        return block

    def drop(self, end: int) -> None:
        """Remove the bytes up to `end` from the window, which then wants its first size again."""
        with memoryview(self.buffer) as view:
            view[: self.filled - end] = view[end : self.filled]
        self.filled -= end
        self.offset += end
        self.wanted = self.size


def overlaps_itself(delimiter: bytes) -> bool:
    r"""Return whether a suffix of the delimiter is also a prefix of it, as in "\n\n".

    Such a delimiter can only be found from the start of a file, not from its middle.
    """
    return any(delimiter.endswith(delimiter[:size]) for size in range(1, len(delimiter)))
