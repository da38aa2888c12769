"""Cutting sources into units of work, with a pure function of the sources.

    plain JSON Lines, text with a separator   byte ranges of `unit_bytes`
    Parquet, Arrow files                      runs of row groups or record batches
    small files                               several whole files together
    large compressed files, Arrow streams,    a stream: read once by one process, and cut at the
    huge row groups, files of the Hub with   record after every `unit_bytes` decompressed bytes
    --streaming

Files in object stores are cut in the same way. If finding the parts of a file takes a request, the
plan has a stream for the file, and the worker that takes it sends the request (`find_units`). So
planning needs no request per file.

The units do not depend on the number of workers, so neither does the dataset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tokenmill.core.errors import DamagedInputError
from tokenmill.read.compression import DECOMPRESSED_PER_BYTE
from tokenmill.read.documents import source_errors
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import (
    FORMATS,
    ByteFormat,
    Extent,
    SpoolWriter,
)
from tokenmill.read.source import Source

MIN_UNIT_BYTES = 32 << 20
MAX_UNIT_BYTES = 512 << 20
SLOW_UNIT_BYTES = 1 << 20
"""Unit size for slow tokenizers: one in Python may take ten seconds for it, lost by a kill."""
MAX_SHARDS = 4096


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work that becomes one shard."""

    key: str
    """The name; names sort in the order of the inputs."""
    extents: tuple[Extent, ...]
    num_bytes: int
    """Size on disk in bytes; for progress only."""

    def holds(self, key: str) -> bool:
        """Return whether this unit has the name `key`."""
        return key == self.key


@dataclass(frozen=True, slots=True)
class Stream:
    """A source that must be read in sequence; it becomes units while it is read."""

    source: int
    unit_bytes: int

    @property
    def key(self) -> str:
        """The name of the stream; its units have different names."""
        return f"stream-{self.source:08d}"

    def holds(self, key: str) -> bool:
        """Return whether the unit with the name `key` comes from this stream."""
        return key.startswith(f"{self.source:08d}-")


def stream_of(unit: str) -> str:
    """Return the name of the stream that a unit comes from, if it comes from a stream."""
    return Stream(int(unit[:8]), 0).key


def unit_key(source: int, part: int) -> str:
    """Return the name of a unit, from its first source and the part of that source."""
    return f"{source:08d}-{part:06d}"


def decompressed_bytes(source: Source) -> int:
    """Estimate the decompressed size of a source in bytes."""
    return source.num_bytes * DECOMPRESSED_PER_BYTE[source.compression]


def choose_unit_bytes(sources: Sequence[Source], *, slow: bool = False) -> int:
    """Return a power of two from 32 to 512 MiB that gives at most about 4,096 shards.

    For `slow` tokenizers, from 1 MiB.
    """
    total = sum(map(decompressed_bytes, sources))
    unit_bytes = min(SLOW_UNIT_BYTES, MIN_UNIT_BYTES) if slow else MIN_UNIT_BYTES
    while unit_bytes < MAX_UNIT_BYTES and total > unit_bytes * MAX_SHARDS:
        unit_bytes *= 2
    return unit_bytes


def cut_units(
    sources: Sequence[Source], fields: Fields, unit_bytes: int
) -> Iterator[Unit | Stream]:
    """Yield units and streams in the order of the sources."""
    group: list[Source] = []
    group_bytes = 0
    for source in sources:
        size = decompressed_bytes(source)
        alone = size >= unit_bytes or (source.is_distant and not source.in_parts)
        if group and (alone or group_bytes + size > unit_bytes):
            yield _group_unit(group)
            group, group_bytes = [], 0
        if alone:
            yield from _cut(source, fields, unit_bytes)
        else:
            group.append(source)
            group_bytes += size
    if group:
        yield _group_unit(group)


def count_units(sources: Sequence[Source], fields: Fields, unit_bytes: int) -> int | None:
    """Return the number of units, or None if a file must be read to know it."""
    for source in sources:
        small = decompressed_bytes(source) < unit_bytes and (source.path or source.in_parts)
        known = source.format in FORMATS.built_in and isinstance(FORMATS[source.format], ByteFormat)
        if not small and not known:
            return None
    items = list(cut_units(sources, fields, unit_bytes))
    return None if any(isinstance(item, Stream) for item in items) else len(items)


def _group_unit(group: Sequence[Source]) -> Unit:
    extents = tuple(Extent(source.index) for source in group)
    num_bytes = sum(source.num_bytes for source in group)
    return Unit(unit_key(group[0].index, 0), extents, num_bytes)


def _cut(source: Source, fields: Fields, unit_bytes: int) -> Iterator[Unit | Stream]:
    """Yield the units of one source, or its stream."""
    found = FORMATS[source.format]
    by_arithmetic = source.in_parts and isinstance(found, ByteFormat)
    units = None
    if by_arithmetic or not source.is_distant:
        units = units_of_parts(source, fields, unit_bytes)
    if units is None:
        yield Stream(source.index, unit_bytes)
    else:
        yield from units


def find_units(stream: Stream, source: Source, fields: Fields) -> list[Unit] | None:
    """Return the units of a remote file that can be read in parts, from the file's metadata.

    They equal the units of the same file on this machine. Returns None if the file can only be read
    from its start.

    Raises:
        StorageError: the file cannot be read.
        InputChangedError: the file has changed since it was listed.
    """
    if not source.in_parts or isinstance(FORMATS[source.format], ByteFormat):
        return None
    return units_of_parts(source, fields, stream.unit_bytes)


def units_of_parts(source: Source, fields: Fields, unit_bytes: int) -> list[Unit] | None:
    """Return a unit for each part of a source; None if it can only be read from its start."""
    try:
        parts = FORMATS[source.format].cut(source, fields.of(source), unit_bytes)
    except DamagedInputError:
        parts = [(Extent(source.index), source.num_bytes)]  # its unit reports the damage
    if parts is None:
        return None
    return [
        Unit(unit_key(source.index, number), (extent,), num_bytes)
        for number, (extent, num_bytes) in enumerate(parts)
    ]


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
) -> Iterator[tuple[Unit, Path | None]]:
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
        pieces = _spooled(raw, stream, source, fields, spool_path)
        for part, (stop, spooled) in enumerate(pieces):
            num_bytes, consumed = raw.tell() - consumed, raw.tell()
            extent = Extent(source.index, first, stop)
            yield Unit(unit_key(source.index, part), (extent,), num_bytes), spooled
            first = stop
        source.require_unchanged()


def _spooled(
    raw: BinaryIO, stream: Stream, source: Source, fields: Fields, spool_path: SpoolPath
) -> Iterator[tuple[int, Path | None]]:
    """Yield (end, spool file) for every part; ends are bytes of the decompressed file, or rows."""
    found = FORMATS[source.format]
    part = size = stop = 0
    writer: SpoolWriter | None = None
    path: Path | None = None
    blocks = found.blocks(source, Extent(source.index), fields.of(source), PIECE_BYTES, raw)
    try:
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
    finally:
        if writer is not None:  # damage, or a caller that stops
            writer.close()
