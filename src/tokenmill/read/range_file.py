"""Seekable remote files that fetch ranges as they are read, and the next ranges ahead."""

from __future__ import annotations

import bisect
import io
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

from tokenmill.read.compression import damaged

BLOCK_BYTES = 8 << 20
"""Bytes per request. A request takes about 0.1 s, the time of this many bytes on a fast line."""

Range = tuple[int, int]
"""Bytes [start, stop)."""


class RangeFile(io.RawIOBase):
    """A seekable file of `num_bytes` bytes; subclasses define `read` or `readinto`."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        """Return True; `RawIOBase` returns False."""
        return True

    def seekable(self) -> bool:
        """Return True; `RawIOBase` returns False."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position of the next read, without fetching anything."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._num_bytes}
        self._position = max(base[whence] + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, up to the end of the file."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_ahead(self, columns: Sequence[Sequence[Range]], block_bytes: int) -> None:
        """Announce which ranges of each column will be read; does nothing by default."""


SMALL_BLOCK_BYTES = 1 << 20
"""Bytes fetched for a smaller read, if no ranges were announced."""
MAX_BLOCKS_AHEAD = 3
"""Most blocks ahead per column. With only one request, the line would idle between answers."""
MAX_AHEAD_BYTES = 64 << 20
"""Most bytes that all files of the process together keep in memory ahead of their readers."""


class _Room:
    """The shared budget of bytes that all files of the process may read ahead."""

    def __init__(self) -> None:
        self._taken = 0
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> bool:
        """Take `num_bytes` from the budget; return False if there is not enough."""
        with self._lock:
            has_room = self._taken + num_bytes <= MAX_AHEAD_BYTES
            self._taken += num_bytes if has_room else 0
            return has_room

    def give_back(self, num_bytes: int) -> None:
        """Return `num_bytes` to the budget."""
        with self._lock:
            self._taken -= num_bytes


_ROOM = _Room()


class ReadAheadFile(RangeFile):
    """A file that sends requests as it is read, unless the bytes were read ahead.

    Subclasses define `_fetch` and `_begin`, and may define `_result`.
    """

    def __init__(self, num_bytes: int, where: str) -> None:
        super().__init__(num_bytes)
        self._where = where
        self._recent: tuple[int, bytes] = (0, b"")
        """Offset and content of the bytes that were fetched but not yet read."""
        self._starts: dict[int, int] = {}
        self._following: dict[int, Range] = {}
        """For the end of each announced range: its start, and the next range of the column."""
        self._ends: list[int] = []
        self._block_bytes = 0
        self._num_ahead = -1
        """Blocks to read ahead after the next read; grows, because many callers read only once."""
        self._coming: dict[int, tuple[int, Future[bytes]]] = {}
        """Blocks that are read ahead, by offset: their size and their future bytes."""

    def _fetch(self, start: int, stop: int) -> bytes:
        """Fetch the bytes [start, stop), which are inside the file."""
        raise NotImplementedError

    def _begin(self, start: int, stop: int) -> Future[bytes]:
        """Start `_fetch` without waiting for it."""
        raise NotImplementedError

    def _result(self, start: int, coming: Future[bytes]) -> bytes:
        """Wait for the bytes at `start` that `_begin` requested."""
        return coming.result()

    def read_ahead(self, columns: Sequence[Sequence[Range]], block_bytes: int) -> None:
        """Announce the ranges of each column that will be read, in order and in blocks.

        From then on, the next blocks of a column are fetched while the caller works on the last
        one. Nothing is fetched that was neither announced nor requested.

        Raises:
            DamagedInputError: a range is outside the file.
        """
        for ranges in columns:
            for (start, stop), following in pairwise([*ranges, (0, 0)]):
                if not 0 <= start <= stop <= self._num_bytes:
                    why = f"it refers to bytes {start} to {stop}, but has {self._num_bytes}"
                    raise damaged(self._where, why)
                self._starts[stop], self._following[stop] = start, following
        self._ends = sorted(self._starts)
        self._block_bytes = block_bytes

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, up to the end of the file."""
        start = min(self._position, self._num_bytes)
        stop = min(start + len(buffer), self._num_bytes)
        position = start
        while position < stop:
            piece = self._piece(position, stop)
            buffer[position - start : position - start + len(piece)] = piece
            position += len(piece)
        self._position = stop
        self._fetch_next(stop)
        return stop - start

    def close(self) -> None:
        """Discard bytes that were read ahead."""
        while self._coming:
            num_bytes, coming = self._coming.popitem()[1]
            coming.cancel()
            _ROOM.give_back(num_bytes)
        super().close()

    def _piece(self, start: int, stop: int) -> bytes:
        """Return bytes from `start`, at most up to `stop`."""
        if start in self._coming:
            num_bytes, coming = self._coming[start]
            self._recent = (start, self._result(start, coming))
            del self._coming[start]
            _ROOM.give_back(num_bytes)
        first, data = self._recent
        if not first <= start < first + len(data):
            end = stop if self._starts else max(stop, start + SMALL_BLOCK_BYTES)
            first, data = start, self._fetch(start, min(end, self._num_bytes))
            self._recent = (first, data)
        if stop >= first + len(data) and (self._starts or len(data) > SMALL_BLOCK_BYTES):
            self._recent = (0, b"")
        return data[start - first : stop - first]

    def _fetch_next(self, position: int) -> None:
        """Start to fetch the blocks after `position` in its column, one more after each read."""
        self._num_ahead = min(self._num_ahead + 1, MAX_BLOCKS_AHEAD)
        first, data = self._recent
        if first <= position < first + len(data):
            position = first + len(data)
        for _ in range(self._num_ahead if self._starts else 0):
            start, stop = self._range_after(position)
            if start >= stop:
                return
            position = min(stop, start + self._block_bytes)
            if start not in self._coming and _ROOM.take(position - start):
                self._coming[start] = (position - start, self._begin(start, position))

    def _range_after(self, position: int) -> Range:
        """Return the rest of the range around `position`, else the next range of its column."""
        if position in self._following:
            return self._following[position]
        index = bisect.bisect(self._ends, position)
        stop = self._ends[index] if index < len(self._ends) else 0
        return (position, stop) if position > self._starts.get(stop, position) else (stop, stop)
