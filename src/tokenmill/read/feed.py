"""Cutting a stream into spool files; each is a unit that any worker can read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tokenmill.read.documents import SpooledPart, source_errors
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS, SpoolWriter
from tokenmill.read.sources import Source
from tokenmill.read.units import Extent, Stream, Unit, unit_key

PIECE_BYTES = 1 << 20

SpoolPath = Callable[[int], Path | None]
"""Returns the path of a part's spool file, or None if the part is not wanted."""


def feed_stream(
    stream: Stream,
    source: Source,
    fields: Fields,
    folder: Path,
    wanted: Callable[[str], bool],
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Unit, SpooledPart | None]]:
    """Yield every unit of a stream with its spool file, or with None if it is not `wanted`.

    The caller removes the spool files. `check` is called repeatedly while waiting for a server, and
    may raise. A unit ends with the first record that reaches `stream.unit_bytes` decompressed bytes
    since the start of the unit.

    Raises:
        DataError: the stream is damaged; units before the damage have been yielded.
    """

    def spool_path(part: int) -> Path | None:
        key = unit_key(source.index, part)
        return folder / f"{key}.spool" if wanted(key) else None

    first = consumed = 0
    with source_errors(source, lambda: first), source.open(check) as raw:
        source.require_unchanged()
        pieces = _cut(raw, stream, source, fields, spool_path)
        for part, (stop, spooled) in enumerate(pieces):
            num_bytes, consumed = raw.tell() - consumed, raw.tell()
            extent = Extent(source.index, first, stop)
            yield (
                Unit(unit_key(source.index, part), (extent,), num_bytes),
                SpooledPart(spooled, first) if spooled else None,
            )
            first = stop
        source.require_unchanged()


def _cut(
    raw: BinaryIO, stream: Stream, source: Source, fields: Fields, spool_path: SpoolPath
) -> Iterator[tuple[int, Path | None]]:
    """Yield (end, spool file) for every part; ends are bytes of the decompressed file, or rows."""
    found = FORMATS[source.format]
    part = size = stop = 0
    writer: SpoolWriter | None = None
    path: Path | None = None
    blocks = found.blocks(source, Extent(source.index), fields, PIECE_BYTES, raw)
    with _closing(lambda: writer):
        for block in blocks:
            if writer is None:
                path = spool_path(part)
                writer = found.open_spool(path or os.devnull, block)
            writer.write(block.content)
            size, stop = size + block.num_bytes, block.stop
            if size >= stream.unit_bytes and not block.is_open:
                writer.close()
                writer = None  # closing an Arrow stream twice writes a second end mark
                yield stop, path
                part, size = part + 1, 0
        if writer is not None:
            writer.close()
            writer = None
            yield stop, path


@contextmanager
def _closing(current: Callable[[], SpoolWriter | None]) -> Iterator[None]:
    """Close the spool file that is left unfinished by damage or by a caller that stops."""
    try:
        yield
    finally:
        if (writer := current()) is not None:
            writer.close()
