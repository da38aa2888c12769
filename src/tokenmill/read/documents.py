"""Reading the documents of a unit, and digests of what was read."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import DataError, StorageError, UserError
from tokenmill.core.records import DocumentBatch
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS, Block, Extent, Parse
from tokenmill.read.rendering.renderer import FailedRenderingError
from tokenmill.read.source import Source, Sources

MAX_GROUPED_BATCHES = 4_096
"""Most batches per encoding call; needed because empty files have no bytes to count."""

Observer = Callable[[int, bytes | memoryview], None]
"""A function called with (source, bytes) for everything that is read, for digests."""


class Reader:
    """Reads extents of sources as document batches of about `batch_bytes`."""

    def __init__(self, sources: Sources, fields: Fields, batch_bytes: int) -> None:
        self._sources = sources
        self._fields = fields
        self._batch_bytes = batch_bytes
        self._parsers: dict[tuple[str, str], Parse] = {}
        self.observe: Observer = lambda *_: None
        self.position = 0
        """Start of the part of the source that is being read."""

    def read(self, extent: Extent, spool: Path | None = None) -> Iterator[DocumentBatch]:
        """Yield the documents of an extent, in order, from its spool file if it has one.

        Raises:
            DataError: the source is damaged.
            StorageError: the source does not exist any more or cannot be read.
        """
        source = self._sources[extent.source]
        self.position = 0
        with source_errors(source, lambda: self.position):
            if not spool:
                source.require_unchanged()
            found, fields = FORMATS[source.format], self._fields.of(source)
            parse = self._parser(source.format, fields)
            if spool:
                blocks = found.spooled_blocks(spool, extent, source, fields, self._batch_bytes)
            else:
                blocks = found.blocks(source, extent, fields, self._batch_bytes)
            is_rest = False
            for block in blocks:
                self.position = block.start
                self.observe(source.index, found.digested(block, fields))
                yield self._rest(block, source) if is_rest else parse(block, source)
                self.position, is_rest = block.stop, block.is_open
            if not spool:
                source.require_unchanged()

    def _rest(self, block: Block, source: Source) -> DocumentBatch:
        """Return no documents: the record was rejected for its part in an earlier block."""
        none = np.zeros(0, np.int64)
        batch = DocumentBatch(source.index, [], none, none, blank_bytes=block.num_bytes)
        batch.columns = {name: [] for name in self._fields.keep}
        return batch

    def _parser(self, name: str, fields: Fields) -> Parse:
        key = name, fields.text
        if key not in self._parsers:
            self._parsers[key] = FORMATS[name].parser(fields)
        return self._parsers[key]


def grouped(batches: Iterable[DocumentBatch], num_bytes: int) -> Iterator[list[DocumentBatch]]:
    """Yield lists of batches with about `num_bytes` in total.

    Each small file is a separate batch; grouping them shares the cost of encoding and writing.
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


@contextmanager
def source_errors(source: Source, position: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turn exceptions of the enclosed block into errors that name the source.

    An OSError becomes a StorageError, and a MemoryError a DataError that also names the `position`.
    Failures of the user's code get their position in the source.
    """
    try:
        yield
    except FailedRenderingError as error:
        where = f"{source.where}, position {error.position}"
        raise UserError(error.what, where=where, why=error.why, hint=error.hint) from error
    except MemoryError as error:
        raise DataError(
            "not enough memory to read an input file",
            where=f"{source.where}, at or after position {position()}",
            why="each record must fit in memory",
            hint="give the process more memory, split the record, or omit the file",
        ) from error
    except (StorageError, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                "no disk space left to decompress part of an input file",
                where=source.where,
                why=str(error.strerror),
                hint="free some space and run the same command again; it resumes where it stopped",
            ) from error
        raise StorageError(
            "cannot read an input file",
            where=source.where,
            why=error.strerror or str(error),
            hint="restore the same file and run the same command again; it resumes",
        ) from error


class ReadDigests:
    """Digests of everything that a reader reads, by the index of the source.

    The bytes of a table's texts show neither where a text ends nor the other columns, so rows have
    separate digests.
    """

    def __init__(self, sources: Sources, fields: Fields) -> None:
        self._sources = sources
        self._has_texts = fields.rendering is not None
        self._bytes: dict[int, xxhash.xxh3_128] = {}
        self._rows: dict[int, list[xxhash.xxh3_128]] = {}

    def observe(self, source: int, data: bytes | memoryview) -> None:
        """Add bytes; an observer of `Reader`."""
        self._bytes.setdefault(source, xxhash.xxh3_128()).update(data)

    def add_rows(self, batch: DocumentBatch) -> None:
        """Add documents, if they come from rows."""
        if not FORMATS[self._sources[batch.source].format].digests_texts_only:
            return
        columns = _columns(batch)
        if self._has_texts:  # texts are rendered, so no column has them
            columns += _texts(batch)
        hashers = self._rows.setdefault(batch.source, [xxhash.xxh3_128() for _ in columns])
        for hasher, column in zip(hashers, columns, strict=True):
            hasher.update(column)

    def of_bytes(self) -> dict[str, str]:
        """Return digests of bytes by index of the source, without sources that were not read."""
        return {str(source): found.hexdigest() for source, found in sorted(self._bytes.items())}

    def of_rows(self) -> dict[str, str]:
        """Return digests of rows by index of the source, without sources that have no rows."""
        return {
            str(source): xxhash.xxh3_128_hexdigest(b"".join(each.digest() for each in hashers))
            for source, hashers in sorted(self._rows.items())
        }


def _texts(batch: DocumentBatch) -> list[bytes]:
    lines = msgspec.json.Encoder().encode_lines
    return [lines(batch.texts), lines([found.record for found in batch.rejected])]


def _columns(batch: DocumentBatch) -> list[bytes]:
    """Return each column of a batch except texts as bytes, such that parts can be joined."""
    lines = msgspec.json.Encoder().encode_lines
    return [
        batch.positions.tobytes(),
        batch.record_bytes.tobytes(),
        lines([(found.position, found.reason, found.detail) for found in batch.rejected]),
        lines(batch.ids or ()),
        *(lines(values) for values in batch.columns.values()),
        lines(batch.no_loss or ()),
    ]
