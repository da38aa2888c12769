"""A stream read once and cut into spool files, each a unit that any worker can read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill.read.blocks import iter_blocks
from tokenmill.read.compression import decompressed
from tokenmill.read.documents import COLUMNAR_FORMATS, SpooledPart, delimiter_of, source_errors
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.isolated import iter_pieces
from tokenmill.read.sources import Source
from tokenmill.read.units import Extent, Stream, Unit, unit_key

PIECE_BYTES = 1 << 20
WRITE_BYTES = 16 << 20  # Linux takes few large writes up to three times faster

SpoolPath = Callable[[int], Path | None]
"""The spool file of a part, or None where the part is not wanted."""


def feed_stream(
    stream: Stream,
    source: Source,
    fields: Fields,
    folder: Path,
    wanted: Callable[[str], bool],
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Unit, SpooledPart | None]]:
    """Yield every unit of a stream with its spool file, or with None where it is not `wanted`.

    The caller removes the spool files. `check` is called now and then while a server is waited for,
    and may raise. A unit ends with the first record that reaches
    `stream.unit_bytes` decompressed bytes since the unit began.

    Raises:
        DataError: the stream is damaged; the units before the damage have been yielded.
    """

    def spool_path(part: int) -> Path | None:
        key = unit_key(source.index, part)
        return folder / f"{key}.spool" if wanted(key) else None

    cut = _cut_columnar if source.format in COLUMNAR_FORMATS else _cut_bytes
    first = consumed = 0
    with source_errors(source, lambda: first), source.open(check) as raw:
        source.require_unchanged()
        pieces = cut(raw, stream, source, fields, spool_path)
        for part, (size, spooled) in enumerate(pieces):
            extent = Extent(source.index, first, first + size)
            num_bytes, consumed = raw.tell() - consumed, raw.tell()
            unit = Unit(unit_key(source.index, part), (extent,), num_bytes)
            yield unit, SpooledPart(spooled, first) if spooled else None
            first += size
        source.require_unchanged()


def _cut_bytes(
    raw: BinaryIO, stream: Stream, source: Source, fields: Fields, spool_path: SpoolPath
) -> Iterator[tuple[int, Path | None]]:
    """Yield (decompressed bytes, spool file) for every part."""
    part = size = 0
    writer: BinaryIO | None = None
    path: Path | None = None
    with (
        decompressed(raw, source.where, source.compression) as plain,
        _closing(lambda: writer),
    ):
        for _, block in iter_blocks(plain, 0, None, delimiter_of(source, fields), PIECE_BYTES):
            if writer is None:
                path = spool_path(part)
                writer = open(path or os.devnull, "wb", WRITE_BYTES)  # noqa: SIM115
            writer.write(block)
            size += len(block)
            if size >= stream.unit_bytes:
                writer.close()
                writer = None
                yield size, path
                part, size = part + 1, 0
        if writer is not None:  # before `raw` is closed, whose position the caller asks for
            writer.close()
            writer = None
            yield size, path


def _cut_columnar(
    raw: BinaryIO, stream: Stream, source: Source, fields: Fields, spool_path: SpoolPath
) -> Iterator[tuple[int, Path | None]]:
    """Yield (rows, spool file) for every part; a spool is an Arrow stream."""
    import pyarrow as pa

    part = size = rows = 0
    writer, path = None, None
    with _closing(lambda: writer):
        for _, batch, num_bytes in iter_pieces(source, fields, None, PIECE_BYTES, raw):
            if writer is None:
                path = spool_path(part)
                writer = pa.ipc.new_stream(str(path or os.devnull), batch.schema)
            writer.write_batch(batch)
            size, rows = size + num_bytes, rows + batch.num_rows
            if size >= stream.unit_bytes:
                writer.close()
                writer = None  # closed again, it would write a second end mark
                yield rows, path
                part, size, rows = part + 1, 0, 0
        if writer is not None:
            writer.close()
            writer = None
            yield rows, path


@contextmanager
def _closing(current: Callable[[], Any]) -> Iterator[None]:
    """Close the spool file that damage, or a caller who stops, leaves unfinished."""
    try:
        yield
    finally:
        if (writer := current()) is not None:
            writer.close()
