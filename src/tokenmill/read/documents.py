"""The documents of a unit: the one reader that build, verify and estimate share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tokenmill.errors import DataError, StorageError
from tokenmill.read.blocks import iter_blocks
from tokenmill.read.compression import decompressed
from tokenmill.read.fields import Fields
from tokenmill.read.formats.jsonl import JsonlParser
from tokenmill.read.formats.tables.columnar import parse_record_batch, spooled_batches, text_bytes
from tokenmill.read.formats.tables.isolated import iter_pieces
from tokenmill.read.formats.text import parse_text_block
from tokenmill.read.sources import Source
from tokenmill.read.units import Extent
from tokenmill.records import DocumentBatch

MAX_GROUPED_BATCHES = 4_096
"""Batches encoded in one call: empty files have no bytes to count."""
COLUMNAR_FORMATS = ("parquet", "arrow-file", "arrow-stream")

Observer = Callable[[int, bytes | memoryview], None]
"""Called with (source, bytes) for everything that is read, for digests."""


@dataclass(frozen=True, slots=True)
class SpooledPart:
    """A part of a stream that another process has read and decompressed for us."""

    path: Path
    first: int
    """Offset of the part's first byte in the decompressed stream, or its first row."""


class Reader:
    """Reads extents of sources as document batches of about `batch_bytes`."""

    def __init__(self, sources: Sequence[Source], fields: Fields, batch_bytes: int) -> None:
        self._sources = sources
        self._fields = fields
        self._batch_bytes = batch_bytes
        self._jsonl = JsonlParser(fields)
        self.observe: Observer = lambda *_: None
        self.position = 0
        """Where the part of the source begins that is being read."""

    def read(self, extent: Extent, spool: SpooledPart | None = None) -> Iterator[DocumentBatch]:
        """Yield the documents of an extent, in order.

        Raises:
            DataError: the source is damaged.
            StorageError: the source vanished, or cannot be read.
        """
        source = self._sources[extent.source]
        self.position = 0
        with source_errors(source, lambda: self.position):
            if not spool:
                source.require_unchanged()
            if source.format in COLUMNAR_FORMATS:
                yield from self._read_columnar(source, extent, spool)
            elif source.format == "text" and not self._fields.separator:
                yield self._read_whole(source, spool)
            else:
                yield from self._read_delimited(source, extent, spool)
            if not spool:
                source.require_unchanged()

    def _read_delimited(
        self, source: Source, extent: Extent, spool: SpooledPart | None
    ) -> Iterator[DocumentBatch]:
        separator = delimiter_of(source, self._fields)
        first = spool.first if spool else 0
        start, stop = (0, None) if spool else (extent.start, extent.stop)
        with _open(source, spool) as stream:
            if start:
                stream.seek(max(start - len(separator), 0))
            block_bytes = self._batch_bytes
            if source.compression == "none":  # a small file needs no large buffer
                block_bytes = min(block_bytes, source.num_bytes + 1)
            for offset, block in iter_blocks(stream, start, stop, separator, block_bytes):
                self.observe(source.index, block)
                self.position = first + offset
                if source.format == "jsonl":
                    yield self._jsonl.parse(block, first + offset, source.index)
                else:
                    yield parse_text_block(block, first + offset, source.index, separator)
                self.position = first + offset + len(block)

    def _read_whole(self, source: Source, spool: SpooledPart | None) -> DocumentBatch:
        with _open(source, spool) as stream:
            data = stream.read()
        self.observe(source.index, data)
        return parse_text_block(data, 0, source.index, None)

    def _read_columnar(
        self, source: Source, extent: Extent, spool: SpooledPart | None
    ) -> Iterator[DocumentBatch]:
        groups = None if extent.stop is None else range(extent.start, extent.stop)
        if spool:
            batches = spooled_batches(spool.path, spool.first, self._batch_bytes)
        else:
            pieces = iter_pieces(source, self._fields, groups, self._batch_bytes)
            batches = ((piece.first, piece.batch) for piece in pieces)
        for row, batch in batches:
            self.position = row
            self.observe(source.index, text_bytes(batch, self._fields))
            yield parse_record_batch(batch, row, source, self._fields)


def grouped(batches: Iterable[DocumentBatch], num_bytes: int) -> Iterator[list[DocumentBatch]]:
    """Collect batches until they hold about `num_bytes`.

    Each small file is a batch of its own; together they share the cost of encoding and writing.
    """
    group: list[DocumentBatch] = []
    size = 0
    for batch in batches:
        group.append(batch)
        size += sum(map(len, batch.texts))
        if 2 * size >= num_bytes or len(group) == MAX_GROUPED_BATCHES:
            yield group
            group, size = [], 0
    if group:
        yield group


def delimiter_of(source: Source, fields: Fields) -> bytes:
    """What ends a record of a source that is made of bytes."""
    return b"\n" if source.format == "jsonl" else (fields.separator or "").encode()


@contextmanager
def _open(source: Source, spool: SpooledPart | None) -> Iterator[BinaryIO]:
    compression = "none" if spool else source.compression
    with (
        open(spool.path, "rb") if spool else source.open() as raw,
        decompressed(raw, source.where, compression) as stream,
    ):
        if compression == "none" and not source.streamed and hasattr(os, "posix_fadvise"):
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield stream


@contextmanager
def source_errors(source: Source, position: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn an OSError of the enclosed block into a StorageError that names the source, and a
    MemoryError into a DataError that names the `position` as well.
    """
    try:
        yield
    except MemoryError as error:
        raise DataError(
            "there is not enough memory to read an input",
            where=f"{source.where}, from position {position()} on",
            why="a record is read whole, however long it is",
            hint="give the process more memory, split the record, or leave the file out",
        ) from error
    except (StorageError, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                "no room to spool a decompressed part of an input",
                where=source.where,
                why=str(error.strerror),
                hint="free some space and run the same command again: it resumes",
            ) from error
        raise StorageError(
            "cannot read an input",
            where=source.where,
            why=error.strerror or str(error),
            hint="bring the file back unchanged and run the same command again: it resumes",
        ) from error
