"""Memory-mapped files that keep no descriptor open.

Python's `mmap` keeps a descriptor open (before 3.13, always), and processes are often limited to
1,024. A loader maps two files per shard. If it could map only 256 of 1,024 shards at once, batches
of a global shuffle would take 18 times as long (`bench/loader.py --parts maps`). This module
therefore calls the system's mmap directly.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path

from tokenmill.core.errors import StorageError
from tokenmill.store.canonical import wrong_size

MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class FileMap:
    """A file mapped for reading at `address`.

    Compiled code reads from the address, so keep this object as long as the address is in use.

    Raises:
        VerificationError: the size of the file is not `size` bytes.
        StorageError: the system refuses to map the file.
    """

    def __init__(self, path: Path, size: int) -> None:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_size != size:
                raise wrong_size(str(path), size, found.st_size)
            address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address is None or address == MAP_FAILED:
            why = os.strerror(ctypes.get_errno())
            raise StorageError("cannot map a file into memory", where=str(path), why=why)
        self.address: int = address
        self._size = size
        self.identity = (found.st_ino, found.st_mtime_ns)
        """Inode and mtime, to notice that the file was replaced or changed."""
        self._unmap = weakref.finalize(self, _libc.munmap, address, size)
        self._unmap.atexit = False  # other threads may still read

    @property
    def data(self) -> memoryview:
        """The bytes of the file without a copy; only valid while the file is mapped."""
        return memoryview((ctypes.c_ubyte * self._size).from_address(self.address)).cast("B")

    @property
    def __array_interface__(self) -> dict[str, object]:
        """For `np.asarray`: the bytes, which stay mapped while an array or a view of it exists."""
        return {
            "version": 3,
            "shape": (self._size,),
            "typestr": "|u1",
            "data": (self.address, True),
        }

    def forget(self) -> None:
        """Give the memory of what was read back to the system. The file stays mapped."""
        _libc.madvise(self.address, self._size, mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file."""
        self._unmap()
