"""Digests of what is read of sources, the same whatever blocks it comes in."""

from __future__ import annotations

import msgspec
import xxhash

from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.sources import Sources
from tokenmill.records import DocumentBatch


class ReadDigests:
    """Of everything that a reader reads, by the index of the source.

    The bytes of a table's texts do not say where one ends and the next begins, nor what else its
    rows hold: rows have digests of their own.
    """

    def __init__(self, sources: Sources, fields: Fields) -> None:
        self._sources = sources
        self._has_texts = fields.rendering is not None
        self._bytes: dict[int, xxhash.xxh3_128] = {}
        self._rows: dict[int, list[xxhash.xxh3_128]] = {}

    def observe(self, source: int, data: bytes | memoryview) -> None:
        """Take bytes, as a `Reader` tells of them."""
        self._bytes.setdefault(source, xxhash.xxh3_128()).update(data)

    def add_rows(self, batch: DocumentBatch) -> None:
        """Take the documents that the bytes became, if they come from rows."""
        if not FORMATS[self._sources[batch.source].format].digests_texts_only:
            return
        columns = _columns(batch)
        if self._has_texts:  # they are in no column of the file
            columns += _texts(batch)
        hashers = self._rows.setdefault(batch.source, [xxhash.xxh3_128() for _ in columns])
        for hasher, column in zip(hashers, columns, strict=True):
            hasher.update(column)

    def of_bytes(self) -> dict[str, str]:
        """By index of the source; without those of which nothing was read."""
        return {str(source): found.hexdigest() for source, found in sorted(self._bytes.items())}

    def of_rows(self) -> dict[str, str]:
        """By index of the source; without those that have no rows."""
        return {
            str(source): xxhash.xxh3_128_hexdigest(b"".join(each.digest() for each in hashers))
            for source, hashers in sorted(self._rows.items())
        }


def _texts(batch: DocumentBatch) -> list[bytes]:
    lines = msgspec.json.Encoder().encode_lines
    return [lines(batch.texts), lines([found.record for found in batch.rejected])]


def _columns(batch: DocumentBatch) -> list[bytes]:
    """Everything of a batch but its texts; columns of parts of it, joined, are the same."""
    lines = msgspec.json.Encoder().encode_lines
    return [
        batch.positions.tobytes(),
        batch.record_bytes.tobytes(),
        lines([(found.position, found.reason, found.detail) for found in batch.rejected]),
        lines(batch.ids or ()),
        *(lines(values) for values in batch.columns.values()),
        lines(batch.no_loss or ()),
    ]
