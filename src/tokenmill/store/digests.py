"""xxh3 digests of whole files, and of every 64 KiB block for checks on first access."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import xxhash

from tokenmill.core.errors import VerificationError

BLOCK_BYTES = 64 * 1024


class DigestWriter:
    """A binary file that computes digests of everything written to it."""

    def __init__(self, path: Path, buffer_bytes: int = 1 << 16) -> None:
        self._file = open(path, "wb", buffering=buffer_bytes)  # noqa: SIM115 - closed by close()
        self._whole = xxhash.xxh3_128()
        self._block = xxhash.xxh3_64()
        self._room = BLOCK_BYTES
        self._blocks: list[int] = []
        self.num_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`, any contiguous bytes-like object, and update the digests."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self._file.write(view)
        self._whole.update(view)
        self.num_bytes += len(view)
        while len(view) >= self._room:
            self._block.update(view[: self._room])
            self._blocks.append(self._block.intdigest())
            view, self._room = view[self._room :], BLOCK_BYTES
            self._block.reset()
        self._block.update(view)
        self._room -= len(view)

    def close(self) -> None:
        """Close the file; the digests stay readable."""
        self._file.close()

    @property
    def digest(self) -> str:
        """xxh3-128 of everything written, in hexadecimal."""
        return self._whole.hexdigest()

    @property
    def block_digests(self) -> bytes:
        """xxh3-64 of every 64 KiB block as little-endian u64; the last block may be shorter."""
        last = [] if self._room == BLOCK_BYTES else [self._block.intdigest()]
        return np.asarray(self._blocks + last, dtype="<u8").tobytes()


def file_digest(path: Path, advance: Callable[[int], object] = lambda num_bytes: None) -> str:
    """Return the xxh3-128 of a file in hexadecimal; `advance` is called with the bytes read."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
            advance(len(piece))
    return digest.hexdigest()


def require_digest(path: Path, digest: str) -> None:
    """Raise a VerificationError if a file of a dataset is missing or has another digest."""
    if not path.is_file() or file_digest(path) != digest:
        raise VerificationError(
            "a file of the dataset is damaged",
            where=str(path),
            why="its digest differs from the one in the manifest",
            hint="tokenmill verify lists what else is damaged",
        )


def num_blocks(num_bytes: int) -> int:
    """Return the number of blocks of a file; the last one may be shorter."""
    return -(-num_bytes // BLOCK_BYTES)


def block_digests(data: memoryview) -> bytes:
    """Return the xxh3-64 of every 64 KiB block of `data`, as little-endian u64."""
    starts = range(0, len(data), BLOCK_BYTES)
    values = [xxhash.xxh3_64_intdigest(data[start : start + BLOCK_BYTES]) for start in starts]
    return np.asarray(values, dtype="<u8").tobytes()
