"""One-dimensional .npy files that grow, and that are opened without believing their headers.

The header is 128 bytes, the same for every version of numpy: equal arrays are equal files, and
what does not begin with exactly the header expected is refused instead of being parsed.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HEADER_BYTES = 128


class ArrayFile:
    """A .npy file that is appended to."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = open(path, "wb", buffering=1 << 20)  # noqa: SIM115 - closed by close()
        self._dtype = np.dtype(dtype)
        self.length = 0
        self._file.write(_header(self._dtype, 0))

    def append(self, values: npt.NDArray[np.integer]) -> None:
        """Add values, converted to the file's dtype."""
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.length += len(values)

    def finish(self) -> None:
        """Write the final length into the header, and flush all to the disk."""
        self._file.seek(0)
        self._file.write(_header(self._dtype, self.length))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        """Close the file as it is; it is not wanted any more."""
        with contextlib.suppress(OSError):  # a full disk has been reported already
            self._file.close()


def open_array(path: Path, dtypes: tuple[str, ...], length: int) -> npt.NDArray[Any] | None:
    """A memory map of shape (length,), or None where the file is not such an array."""
    with open(path, "rb") as file:
        found = file.read(HEADER_BYTES)
    for name in dtypes:
        dtype = np.dtype(name)
        size = HEADER_BYTES + length * dtype.itemsize
        if found == _header(dtype, length) and path.stat().st_size == size:
            if not length:
                return np.empty(0, dtype)
            return np.memmap(path, dtype, "r", HEADER_BYTES, (length,))
    return None


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Version 1.0 of the format: magic, version, length of the text, text padded with spaces."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({length},), }}"
    padded = text.ljust(HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()
