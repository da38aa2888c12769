"""Files mapped into memory without a descriptor that stays open for each.

Python's own `mmap` keeps one (before 3.13, always), and a process often may have 1,024. A loader
maps two files a shard: with 256 shards mapped at once instead of all of 1,024, batches of a global
shuffle take 18 times as long (`bench/loader.py --parts maps`). So the system is asked directly.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path

from tokenmill.errors import StorageError, VerificationError
from tokenmill.store.canonical import RESTORE

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


class FileMap:
    """A file mapped for reading, at `address`; Python's own maps keep a descriptor open.

    Compiled code reads it, so whoever holds an address has to hold this object.

    Raises:
        VerificationError: the file has another size than `size` bytes.
        StorageError: the system refuses to map it.
    """

    def __init__(self, path: Path, size: int) -> None:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_size != size:
                raise VerificationError(
                    "a file of the dataset has the wrong size",
                    where=str(path),
                    why=f"it should have {size} bytes, but has {found.st_size}",
                    hint=RESTORE,
                )
            address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        if address is None or address == MAP_FAILED:
            why = os.strerror(ctypes.get_errno())
            raise StorageError("cannot map a file into memory", where=str(path), why=why)
        self.address: int = address
        self._size = size
        self.identity = (found.st_ino, found.st_mtime_ns)
        """What tells the file from another that has taken its name, or its bytes from others."""
        self._unmap = weakref.finalize(self, _libc.munmap, address, size)
        self._unmap.atexit = False  # other threads may still read

    @property
    def data(self) -> memoryview:
        """The bytes of the file, not copied; only for use while the file is mapped."""
        return memoryview((ctypes.c_ubyte * self._size).from_address(self.address)).cast("B")

    @property
    def __array_interface__(self) -> dict[str, object]:
        """For `np.asarray`: the bytes, mapped for as long as the array or a part of it lives."""
        return {
            "version": 3,
            "shape": (self._size,),
            "typestr": "|u1",
            "data": (self.address, True),
        }

    def close(self) -> None:
        """Unmap the file."""
        self._unmap()
