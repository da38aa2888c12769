"""The documents of sources that are kept as text, each with a place from which it is read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import xxhash

from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.preview import check_fields
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Extent, Stream, choose_unit_bytes, cut_units
from tokenmill.records import DocumentBatch

BATCH_BYTES = 1 << 18
"""Text that is read and packed at a time. Places count batches, so it is part of the format."""


class BatchPlace(NamedTuple):
    """Where a batch of documents stands in the sources."""

    extent: int
    """Which part of the sources: what a build would make one unit of, or a file of it."""
    batch: int
    """Which batch of that part."""


class TextCorpus:
    """Documents of files, folders and globs, read as a build reads them.

    A part of a compressed file cannot be found without what precedes it, so such a file is one
    extent, as is every small file; large JSON Lines, text and Parquet files are several.

    Raises:
        UserError: an input cannot be read (see `find_sources`), or has no such text.
    """

    def __init__(self, inputs: Sequence[str], fields: Fields, file_format: str = "auto") -> None:
        self.sources = find_sources(inputs, file_format)
        check_fields(self.sources, fields)
        self._reader = Reader(self.sources, fields, BATCH_BYTES)
        self._extents: list[Extent] = []
        for item in cut_units(self.sources, fields, choose_unit_bytes(self.sources)):
            self._extents += [Extent(item.source)] if isinstance(item, Stream) else item.extents

    def __len__(self) -> int:
        """How many extents there are."""
        return len(self._extents)

    @property
    def identity(self) -> dict[str, Any]:
        """Numbers and a digest by which the same sources are known again."""
        digest = xxhash.xxh3_128()
        for source in self.sources:
            entry = (source.name, source.num_bytes, source.version, source.format)
            digest.update(repr(entry).encode())
        return {
            "files": len(self.sources),
            "bytes": sum(source.num_bytes for source in self.sources),
            "names, sizes and times": digest.hexdigest(),
        }

    def read(self, start: BatchPlace) -> Iterator[tuple[BatchPlace, DocumentBatch]]:
        """Batches from a place on, to the end of the sources.

        Raises:
            DataError: a source is damaged.
            StorageError: a source vanished, or cannot be read.
            InputChangedError: a source is not what it was.
        """
        for extent in range(start.extent, len(self._extents)):
            first = start.batch if extent == start.extent else 0
            for number, batch in enumerate(self._reader.read(self._extents[extent])):
                if number >= first:
                    yield BatchPlace(extent, number), batch
