"""Seekable files that are fetched in ranges."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

BLOCK_BYTES = 8 << 20
"""Bytes per request. A request takes about 0.1 s, the time of this many bytes on a fast line."""

Range = tuple[int, int]
"""Bytes [start, stop)."""


class RangeFile(io.RawIOBase):
    """A seekable file of `num_bytes` bytes; subclasses define `read`."""

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
