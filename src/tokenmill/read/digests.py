"""Digests of the data read from sources, independent of how it is cut into blocks."""

from __future__ import annotations

import msgspec
import xxhash

from tokenmill.core.records import DocumentBatch
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.sources import Sources


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
