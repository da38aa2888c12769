"""Sources cut into units of work, by a pure function of the sources alone.

    plain JSON Lines, text with a separator   byte ranges of `unit_bytes`
    Parquet, Arrow files                      runs of row groups or record batches
    small files                               several whole files together
    large compressed files, Arrow streams,    a stream: read once by one process, and cut at the
    huge row groups, streamed files           record after every `unit_bytes` decompressed bytes

The number of workers never enters, so neither do they enter what is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenmill.errors import DamagedInputError
from tokenmill.read.blocks import overlaps_itself
from tokenmill.read.compression import DECOMPRESSED_PER_BYTE
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.isolated import group_sizes
from tokenmill.read.sources import Source

MIN_UNIT_BYTES = 32 << 20
MAX_UNIT_BYTES = 512 << 20
SLOW_UNIT_BYTES = 1 << 20
"""A tokenizer in Python may take ten seconds for it: what a kill costs, and what is shared out."""
MAX_SHARDS = 4096


@dataclass(frozen=True, slots=True)
class Extent:
    """A part of one source: bytes, row groups or record batches [start, stop)."""

    source: int
    start: int = 0
    stop: int | None = None
    """None: to the end."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of work that becomes one shard."""

    key: str
    """Sorts in the order of the inputs."""
    extents: tuple[Extent, ...]
    num_bytes: int
    """Bytes on disk that the unit stands for; for progress only."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A source that must be read in sequence; it becomes units while it is read."""

    source: int
    unit_bytes: int


def unit_key(source: int, part: int) -> str:
    """The name of a unit: the first source in it, and the part of that source."""
    return f"{source:08d}-{part:06d}"


def decompressed_bytes(source: Source) -> int:
    """What a source's size on disk usually becomes."""
    return source.num_bytes * DECOMPRESSED_PER_BYTE[source.compression]


def choose_unit_bytes(sources: Sequence[Source], *, slow: bool = False) -> int:
    """A power of two from 32 to 512 MiB that keeps the dataset at about 4,096 shards.

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
        alone = size >= unit_bytes or source.streamed
        if group and (alone or group_bytes + size > unit_bytes):
            yield _group_unit(group)
            group, group_bytes = [], 0
        if source.streamed:
            yield Stream(source.index, unit_bytes)
        elif not alone:
            group.append(source)
            group_bytes += size
        elif source.format in ("parquet", "arrow-file"):
            yield from _cut_groups(source, unit_bytes)
        elif source.format == "text" and not fields.separator:
            yield _group_unit([source])  # one document cannot be cut
        elif _is_sequential(source, fields):
            yield Stream(source.index, unit_bytes)
        else:
            yield from _cut_bytes(source, unit_bytes)
    if group:
        yield _group_unit(group)


def _is_sequential(source: Source, fields: Fields) -> bool:
    if source.compression != "none" or source.format == "arrow-stream":
        return True
    return source.format == "text" and overlaps_itself((fields.separator or "").encode())


def _group_unit(group: Sequence[Source]) -> Unit:
    extents = tuple(Extent(source.index) for source in group)
    num_bytes = sum(source.num_bytes for source in group)
    return Unit(unit_key(group[0].index, 0), extents, num_bytes)


def _cut_bytes(source: Source, unit_bytes: int) -> Iterator[Unit]:
    for part, start in enumerate(range(0, source.num_bytes, unit_bytes)):
        stop = min(start + unit_bytes, source.num_bytes)
        yield Unit(unit_key(source.index, part), (Extent(source.index, start, stop),), stop - start)


def _cut_groups(source: Source, unit_bytes: int) -> Iterator[Unit | Stream]:
    """Runs of row groups of about `unit_bytes`; a file with a huge one is read as a stream."""
    try:
        sizes = group_sizes(source)
    except DamagedInputError:
        yield _group_unit([source])  # the unit that reads the file reports the damage
        return
    if max(sizes, default=0) > 2 * unit_bytes:
        yield Stream(source.index, unit_bytes)
        return
    total, start, part = max(sum(sizes), 1), 0, 0
    for stop in range(1, len(sizes) + 1):
        size = sum(sizes[start:stop])
        if stop == len(sizes) or size + sizes[stop] > unit_bytes:
            share = source.num_bytes * size // total
            yield Unit(unit_key(source.index, part), (Extent(source.index, start, stop),), share)
            start, part = stop, part + 1
