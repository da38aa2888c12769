"""Files whose bytes come from elsewhere, one range at a time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

BLOCK_BYTES = 8 << 20
"""What is read at a time. One request takes some 0.1 s, in which a fast line gives as much."""

Range = tuple[int, int]
"""Bytes [start, stop)."""


class RangeFile(io.RawIOBase):
    """A seekable file of `num_bytes` bytes; a subclass defines `read`."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._position = 0

    def readable(self) -> bool:
        """True, in place of the False of `RawIOBase`."""
        return True

    def seekable(self) -> bool:
        """True, in place of the False of `RawIOBase`."""
        return True

    def tell(self) -> int:
        """The place of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the place of the next read; nothing is fetched."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._num_bytes}
        self._position = max(base[whence] + offset, 0)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the file goes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_ahead(self, columns: Sequence[Sequence[Range]], block_bytes: int) -> None:
        """Hear which ranges will be read of each column, in order, in blocks; nothing by itself."""
