"""Files of records, read in every way that a build may read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.core.records import CharSpans, DocumentBatch
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.per_input import PerInput
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Stream, feed_stream

TEXT_FIELD = Fields()


@dataclass
class Found:
    """Everything that was read of a file."""

    documents: list[tuple[int, int, str]] = field(default_factory=list)
    """(position, bytes, text)."""
    rejected: list[tuple[int, str, bytes]] = field(default_factory=list)
    """(position, reason, record)."""
    details: list[str] = field(default_factory=list)
    ids: list[str | None] = field(default_factory=list)
    columns: dict[str, list[str | None]] = field(default_factory=dict)
    no_loss: list[CharSpans] = field(default_factory=list)
    between_bytes: int = 0
    """Of no record: white space, headers, brackets, byte order marks."""
    digested: bytes = b""

    @property
    def texts(self) -> list[str]:
        """The texts alone."""
        return [text for _, _, text in self.documents]

    @property
    def reasons(self) -> list[str]:
        """The reasons alone."""
        return [reason for _, reason, _ in self.rejected]

    @property
    def num_bytes(self) -> int:
        """What the books make of the file."""
        records = sum(size for _, size, _ in self.documents)
        return records + sum(len(record) for *_, record in self.rejected) + self.between_bytes

    def add(self, batch: DocumentBatch) -> None:
        """Take a batch."""
        places = zip(batch.positions.tolist(), batch.record_bytes.tolist(), strict=True)
        self.documents += [(*place, text) for place, text in zip(places, batch.texts, strict=True)]
        self.rejected += [(item.position, item.reason, item.record) for item in batch.rejected]
        self.details += [item.detail for item in batch.rejected]
        self.ids += batch.ids or []
        self.no_loss += batch.no_loss or []
        for name, values in batch.columns.items():
            self.columns.setdefault(name, []).extend(values)
        self.between_bytes += batch.blank_bytes + batch.bom_bytes


def source_of(path: Path, content: bytes, file_format: str = "auto") -> Source:
    """A file with some content, as it is found."""
    path.write_bytes(content)
    (source,) = find_sources([str(path)], PerInput(file_format))
    return source


def read(source: Source, fields: Fields = TEXT_FIELD, batch_bytes: int = 1 << 20) -> Found:
    """A file read from its start to its end."""
    found, pieces = Found(), []
    reader = Reader([source], fields, batch_bytes)
    reader.observe = lambda _, data: pieces.append(bytes(data))
    for batch in reader.read(Extent(0)):
        found.add(batch)
    found.digested = b"".join(pieces)
    return found


def read_as_stream(
    source: Source, folder: Path, unit_bytes: int, batch_bytes: int, fields: Fields = TEXT_FIELD
) -> Found:
    """A file cut into spool files by one process, and each read by another."""
    found, pieces = Found(), []
    reader = Reader([source], fields, batch_bytes)
    reader.observe = lambda _, data: pieces.append(bytes(data))
    stream = Stream(0, unit_bytes)
    for unit, spool in feed_stream(stream, source, fields, folder, lambda key: True):
        assert spool is not None
        for batch in reader.read(unit.extents[0], spool):
            found.add(batch)
        spool.unlink()
    found.digested = b"".join(pieces)
    return found
