"""Reading the documents of a unit; build, verify and estimate share this reader."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tokenmill.core.errors import DataError, StorageError, UserError
from tokenmill.core.records import DocumentBatch
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS, Block, Parse
from tokenmill.read.rendering.renderer import FailedRenderingError
from tokenmill.read.sources import Source, Sources
from tokenmill.read.units import Extent

MAX_GROUPED_BATCHES = 4_096
"""Most batches per encoding call; needed because empty files have no bytes to count."""

Observer = Callable[[int, bytes | memoryview], None]
"""A function called with (source, bytes) for everything that is read, for digests."""


@dataclass(frozen=True, slots=True)
class SpooledPart:
    """A part of a stream that another process has read and decompressed."""

    path: Path
    first: int
    """Offset of the part in the decompressed stream, or its first row."""


class Reader:
    """Reads extents of sources as document batches of about `batch_bytes`."""

    def __init__(self, sources: Sources, fields: Fields, batch_bytes: int) -> None:
        self._sources = sources
        self._fields = fields
        self._batch_bytes = batch_bytes
        self._parsers: dict[str, Parse] = {}
        self.observe: Observer = lambda *_: None
        self.position = 0
        """Start of the part of the source that is being read."""

    def read(self, extent: Extent, spool: SpooledPart | None = None) -> Iterator[DocumentBatch]:
        """Yield the documents of an extent, in order.

        Raises:
            DataError: the source is damaged.
            StorageError: the source does not exist any more or cannot be read.
        """
        source = self._sources[extent.source]
        self.position = 0
        with source_errors(source, lambda: self.position):
            if not spool:
                source.require_unchanged()
            found = FORMATS[source.format]
            parse = self._parser(source.format)
            if spool:
                blocks = found.spooled_blocks(spool, source, self._fields, self._batch_bytes)
            else:
                blocks = found.blocks(source, extent, self._fields, self._batch_bytes)
            is_rest = False
            for block in blocks:
                self.position = block.start
                self.observe(source.index, found.digested(block, self._fields))
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

    def _parser(self, name: str) -> Parse:
        if name not in self._parsers:
            self._parsers[name] = FORMATS[name].parser(self._fields)
        return self._parsers[name]


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
