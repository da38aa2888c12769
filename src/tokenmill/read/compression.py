"""Decompression of files; truncated or damaged files always raise an error."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from tokenmill.core.errors import DamagedInputError, InternalError, TokenmillError

SNIFF_BYTES = 4096

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
}
_ZSTD_SKIPPABLE = tuple(bytes([0x50 + i, 0x2A, 0x4D, 0x18]) for i in range(16))

MAX_WINDOW_BYTES = 1 << 27
"""Most memory that a zstd frame may request, as in zstd's own tools. xz may use twice as much; its
largest preset needs half of that."""

DECOMPRESSED_PER_BYTE = {"none": 1, "gzip": 4, "zstd": 4, "bzip2": 5, "xz": 6}
"""Typical decompressed bytes per compressed byte of text; only for estimates."""


def compression_of(head: bytes) -> str:
    """Detect the compression from the first bytes of a file."""
    if head.startswith(_ZSTD_SKIPPABLE):
        return "zstd"
    found = (name for magic, name in _MAGIC.items() if head.startswith(magic))
    return next(found, "none")


@contextmanager
def decompressed(raw: BinaryIO, path: Path | str, compression: str) -> Iterator[BinaryIO]:
    """Provide a stream of the decompressed bytes of all members or frames of `raw`.

    `raw` stays open.

    Raises:
        DamagedInputError: the file is truncated or damaged (raised while reading).
    """
    if compression == "none":
        yield raw
        return
    with _damage_named(path, compression), _decompressor(raw, compression) as stream:
        yield stream


def _decompressor(raw: BinaryIO, compression: str) -> BinaryIO:
    if compression == "gzip":
        from isal import igzip

        return cast(BinaryIO, igzip.IGzipFile(fileobj=raw, mode="rb"))
    if compression == "zstd":
        try:
            from compression import zstd
        except ImportError:
            from backports import zstd

        options = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_BYTES.bit_length() - 1}
        return cast(BinaryIO, zstd.ZstdFile(raw, "rb", options=options))
    if compression == "bzip2":
        import bz2

        return _Streams.open(raw, bz2.BZ2Decompressor, padding=b"")
    if compression == "xz":
        import lzma

        new = functools.partial(lzma.LZMADecompressor, memlimit=2 * MAX_WINDOW_BYTES)
        return _Streams.open(raw, new, padding=b"\x00")
    raise InternalError(f"no decompressor for {compression!r}")


class _Streams(io.RawIOBase):
    """The data of consecutive bzip2 or xz streams, to the last byte of the file.

    Python's BZ2File and LZMAFile treat damage at the start of a second stream as the end of the
    file, without an error.
    """

    def __init__(self, raw: BinaryIO, new: Callable[[], Any], padding: bytes) -> None:
        self._raw, self._new, self._padding = raw, new, padding
        self._stream = new()

    @classmethod
    def open(cls, raw: BinaryIO, new: Callable[[], Any], padding: bytes) -> BinaryIO:
        """Open a buffered file; `padding` may appear between and after streams."""
        return io.BufferedReader(cls(raw, new, padding), io.DEFAULT_BUFFER_SIZE)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            piece = self._next_piece()
            if not piece and self._stream.eof:
                return 0
            data = self._stream.decompress(piece, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next_piece(self) -> bytes:
        """Return compressed bytes for the current stream, or start a new one if it has ended."""
        if not self._stream.eof:
            piece = self._raw.read(io.DEFAULT_BUFFER_SIZE) if self._stream.needs_input else b""
            if not piece and self._stream.needs_input:
                raise EOFError("the file is truncated")
            return piece
        piece = self._stream.unused_data.lstrip(self._padding)
        while not piece and (data := self._raw.read(io.DEFAULT_BUFFER_SIZE)):
            piece = data.lstrip(self._padding)
        if piece:
            self._stream = self._new()
        return piece


@contextmanager
def _damage_named(path: Path | str, compression: str) -> Iterator[None]:
    import lzma
    import zlib

    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError, OSError, ValueError) as error:
        io_failure = isinstance(error, OSError) and error.errno is not None
        if io_failure or isinstance(error, TokenmillError):
            raise
        raise _undecodable(path, compression, error) from error
    except Exception as error:
        if type(error).__name__ not in ("ZstdError", "IsalError"):
            raise
        raise _undecodable(path, compression, error) from error


def _undecodable(path: Path | str, compression: str, error: Exception) -> DamagedInputError:
    why = f"{compression}: {error}"
    if "memory" not in why.lower():
        return damaged(path, why)
    return DamagedInputError(
        "decompressing an input file needs too much memory",
        where=str(path),
        why=why,
        hint="compress it again with a smaller window (zstd --long=27 at most, xz -9 at most)",
    )


def damaged(path: Path | str, why: str) -> DamagedInputError:
    """Return the error for a damaged input file."""
    return DamagedInputError(
        "an input file is damaged",
        where=str(path),
        why=why,
        hint="get the file again and build with --overwrite, or skip it with --on-bad-file "
        "quarantine",
    )
