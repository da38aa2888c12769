"""The documents of a text stream, each with a place from which it can be read again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import xxhash

from tokenmill.core.records import DocumentBatch
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.preview import check_fields
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Extent, Stream, choose_unit_bytes, cut_units

BATCH_BYTES = 1 << 18
"""Bytes of text in a batch. Places count batches, so changing this invalidates saved states."""


class BatchPlace(NamedTuple):
    """The place of a batch of documents in the sources."""

    extent: int
    """Number of the part of the sources: a unit of a build, or a file of a unit."""
    batch: int
    """Number of the batch in that part."""


class TextCorpus:
    """Documents of files, folders and globs, read as a build reads them.

    Large JSON Lines, text and Parquet files are split into several extents. A compressed file is
    one extent, because its parts cannot be read on their own, and so is a small file.

    Raises:
        UserError: an input cannot be read (see `find_sources`), or does not have the text field.
    """

    def __init__(self, inputs: Sequence[str], fields: Fields, file_format: str = "auto") -> None:
        self.sources = find_sources(inputs, file_format)
        check_fields(self.sources, fields)
        self._reader = Reader(self.sources, fields, BATCH_BYTES)
        self._extents: list[Extent] = []
        for item in cut_units(self.sources, fields, choose_unit_bytes(self.sources)):
            self._extents += [Extent(item.source)] if isinstance(item, Stream) else item.extents

    def __len__(self) -> int:
        """Number of extents."""
        return len(self._extents)

    @property
    def identity(self) -> dict[str, Any]:
        """Numbers and a digest that identify the sources."""
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
        """Yield batches from a place on, to the end of the sources.

        Raises:
            DataError: a source is damaged.
            StorageError: a source is missing or cannot be read.
            InputChangedError: a source has changed.
        """
        for extent in range(start.extent, len(self._extents)):
            first = start.batch if extent == start.extent else 0
            for number, batch in enumerate(self._reader.read(self._extents[extent])):
                if number >= first:
                    yield BatchPlace(extent, number), batch
