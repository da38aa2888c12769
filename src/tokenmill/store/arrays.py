"""One-dimensional .npy files that can grow, and that are opened without trusting their headers.

The header has 128 bytes and is the same for every version of numpy, so equal arrays are equal
files. A file that does not start with exactly the expected header is refused, not parsed.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.store.digests import file_digest
from tokenmill.store.files import path_inside
from tokenmill.store.manifest import FileEntry

HEADER_BYTES = 128


class ArrayFile:
    """A .npy file to append to."""

    def __init__(self, path: Path, dtype: str) -> None:
        self._file = open(path, "wb", buffering=1 << 20)  # noqa: SIM115 - closed by close()
        self._path, self._dtype = path, np.dtype(dtype)
        self.length = 0
        self._file.write(_header(self._dtype, 0))

    def append(self, values: npt.NDArray[np.integer]) -> None:
        """Add values, converted to the file's dtype."""
        self._file.write(np.ascontiguousarray(values, self._dtype).data)
        self.length += len(values)

    def finish(self) -> FileEntry:
        """Write the final length into the header, flush the file to disk, and describe it."""
        self._file.seek(0)
        self._file.write(_header(self._dtype, self.length))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileEntry(
            name=self._path.name,
            bytes=self._path.stat().st_size,
            xxh3_128=file_digest(self._path),
        )

    def close(self) -> None:
        """Close an unfinished file that is no longer needed."""
        with contextlib.suppress(OSError):  # a full disk has been reported already
            self._file.close()


def open_listed(
    folder: Path, name: str, files: Iterable[FileEntry], dtypes: tuple[str, ...], length: int
) -> npt.NDArray[Any]:
    """Return the memory map of an array, shape (length,), in a folder that lists its `files`.

    Raises:
        ValueError: it is missing, or not such an array of the listed size.
        VerificationError: it is a link to outside the folder.
    """
    path = path_inside(folder, name)
    entry = next((file for file in files if file.name == name), None)
    if entry is None or not path.is_file() or path.stat().st_size != entry.bytes:
        raise ValueError("it is missing, or has another size")
    with open(path, "rb") as file:
        found = file.read(HEADER_BYTES)
    for dtype in map(np.dtype, dtypes):
        size = HEADER_BYTES + length * dtype.itemsize
        if found == _header(dtype, length) and entry.bytes == size:
            if not length:
                return np.empty(0, dtype)
            return np.memmap(path, dtype, "r", HEADER_BYTES, (length,))
    raise ValueError(f"it is not an array of {length} numbers of type {dtypes[0]}")


def _header(dtype: np.dtype[Any], length: int) -> bytes:
    """Return a header in version 1.0: magic, version, length, and text padded with spaces."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({length},), }}"
    padded = text.ljust(HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode()
