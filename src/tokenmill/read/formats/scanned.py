"""The base of formats with records that can only be found by reading a file from its start.

In such a file, no byte alone shows whether a record starts there: a line end may be inside quotes,
or a bracket inside a string. So large files are streams: one process scans for the ends of records
and writes spool files of whole records. Each spool file starts with the opening of its source (a
header, an opening bracket), which is needed to read the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

import msgspec
import numpy as np

from tokenmill.core.records import CharSpans, DocumentBatch, Rejection
from tokenmill.read.blocks import BOM, OpenRecord, Window, long_record
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import (
    WRITE_BYTES,
    Block,
    ByteFormat,
    SpoolWriter,
    expect_sequential,
    opened,
)
from tokenmill.read.formats.rendered import RecordRenderer
from tokenmill.read.values import UnfitRecordError, char_spans, missing_field

if TYPE_CHECKING:
    from tokenmill.core.records import DocumentBatch
    from tokenmill.read.formats.format import Extent, SpooledPart
    from tokenmill.read.source import Source

MAX_OPENING_BYTES = 1 << 24
"""Largest opening before the first record; every block and spool file has a copy of it."""
_OPENING_SIZE_BYTES = 8


class Spans(NamedTuple):
    """Records in some bytes: record i is bytes [starts[i], stops[i])."""

    starts: list[int]
    stops: list[int]
    consumed: int
    """Start of the next scan. Earlier bytes outside of records are between records."""

    @property
    def bounds(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of each record."""
        return zip(self.starts, self.stops, strict=True)


class IncompleteRecord(Exception):
    """More bytes are needed to find the end of a record."""


class Scanner(Protocol):
    """Finds the records of one file, independent of how its bytes are cut into blocks."""

    most: int
    """Most bytes in which it looks for the end of a record; a longer one comes in parts."""
    kept: int
    """Bytes before those not yet seen that `end_of_long` needs, to find an end across them."""

    def scan(self, data: bytearray, size: int, enough: int, *, final: bool) -> Spans:
        """Find the whole records in the first `size` bytes of `data`, starting between records.

        Those that start after `enough` bytes are left for the next scan. If `final`, no bytes
        follow, and all others are consumed.

        Raises:
            DamagedInputError: the rest of the file cannot be read.
        """

    def end_of_long(self, data: bytearray, size: int) -> int:
        """Return the end of a record that is too long and started before `data`, or 0."""


class Scanned(NamedTuple):
    """The content of a block."""

    opening: bytes
    """The bytes before the first record of the source, byte order mark included."""
    body: bytes
    """The bytes of the block without the opening."""
    spans: Spans

    def offset(self, block: Block) -> int:
        """Return the offset of the body in its source."""
        return block.start or len(self.opening)

    def count_rest(self, block: Block, batch: DocumentBatch) -> None:
        """Count the bytes that are not part of the records in `batch`."""
        rejected = sum(item.num_bytes for item in batch.rejected)
        batch.blank_bytes = len(self.body) - int(batch.record_bytes.sum()) - rejected
        if not block.start:
            batch.bom_bytes = len(BOM) if self.opening.startswith(BOM) else 0
            batch.blank_bytes += len(self.opening) - batch.bom_bytes


class ScannedFormat(ByteFormat):
    """A base class; subclasses define `sniff`, `opening_bytes`, `scanner` and `parser`."""

    def opening_bytes(self, data: bytearray, size: int, *, final: bool) -> int | None:
        """Return the number of bytes before the first record; None if more bytes are needed."""
        raise NotImplementedError

    def scanner(self, opening: bytes, where: str, max_record: int, *, whole: bool) -> Scanner:
        """Return a scanner for a file, or a part of it if not `whole`; errors name `where`.

        Every record of more than `max_record` bytes is bad.
        """
        raise NotImplementedError

    def blocks(
        self,
        source: Source,
        extent: Extent,
        fields: Fields,
        block_bytes: int,
        raw: BinaryIO | None = None,
    ) -> Iterator[Block]:
        """Yield the records of a whole file, which comes in one extent."""
        if source.compression == "none":  # a small file needs only a small buffer
            block_bytes = min(block_bytes, source.num_bytes + 1)
        with opened(source, raw, (0, source.num_bytes)) as stream:
            window = Window(stream, 0, block_bytes)
            opening = self.read_opening(window, source.where)
            scanner = self.scanner(opening, source.where, fields.max_record, whole=True)
            yield from _scan(window, opening, scanner, is_first=True)

    def read_opening(self, window: Window, where: str) -> bytes:
        """Remove the opening from a window at the start of a file; messages name `where`.

        Raises:
            DamagedInputError: the opening is longer than `MAX_OPENING_BYTES`.
        """
        size, final = None, False
        while size is None and not final and window.filled <= MAX_OPENING_BYTES:
            final = window.fill()
            size = self.opening_bytes(window.buffer, window.filled, final=final)
            window.grow(2 * MAX_OPENING_BYTES)
        size = window.filled if size is None else size
        if size > MAX_OPENING_BYTES:
            raise damaged(where, f"no record starts within {MAX_OPENING_BYTES:,} bytes")
        return window.take(size)

    def digested(self, block: Block, fields: Fields) -> bytes | memoryview:
        """Return all bytes of the block, inside and outside of records."""
        content: Scanned = block.content
        return content.body if block.start else content.opening + content.body

    def open_spool(self, path: Path | str, block: Block) -> SpoolWriter:
        opening = block.content.opening
        return _BodyWriter(open(path, "wb", WRITE_BYTES), opening)

    def spooled_blocks(
        self, spool: SpooledPart, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        with open(spool.path, "rb") as stream:
            expect_sequential(stream)
            opening = stream.read(int.from_bytes(stream.read(_OPENING_SIZE_BYTES), "little"))
            is_first = not spool.first
            window = Window(stream, len(opening) if is_first else spool.first, block_bytes)
            scanner = self.scanner(opening, source.where, fields.max_record, whole=False)
            yield from _scan(window, opening, scanner, is_first=is_first)


def _scan(window: Window, opening: bytes, scanner: Scanner, *, is_first: bool) -> Iterator[Block]:
    """Yield the remaining blocks of a window; the opening counts as part of the first one."""
    start = 0 if is_first else window.offset
    for body, spans in _bodies(window, scanner):
        stop = window.offset
        if stop > start:
            is_open = isinstance(body, OpenRecord)
            yield Block(start, stop, stop - start, Scanned(opening, body, spans), is_open)
        start = stop


def _bodies(window: Window, scanner: Scanner) -> Iterator[tuple[bytes, Spans]]:
    """Remove all bytes from a window, and yield them with their records."""
    most = scanner.most + 1 + scanner.kept
    window.size = window.wanted = min(window.size, most)
    final = False
    while not final:
        final = window.fill()
        spans = scanner.scan(window.buffer, window.seen, window.size, final=final)
        final = final and spans.consumed == window.seen
        if spans.consumed or final:
            yield window.take(spans.consumed), spans
        elif not window.grow(most):
            for _, body in long_record(window, scanner.kept, scanner.end_of_long):
                yield body, Spans([0], [len(body)], 0)  # only those of the first are read


class _BodyWriter:
    """Writes the bodies of blocks to a spool file that already has the opening."""

    def __init__(self, file: BinaryIO, opening: bytes) -> None:
        self._file = file
        file.write(len(opening).to_bytes(_OPENING_SIZE_BYTES, "little") + opening)

    def write(self, content: Scanned, /) -> object:
        return self._file.write(content.body)

    def close(self) -> object:
        self._file.close()
        return None


class FlatParser:
    """Turns records of strings into documents for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._renderer = RecordRenderer(fields) if fields.rendering else None

    def parse(
        self,
        block: Block,
        source: int,
        records: Sequence[Mapping[str, str] | UnfitRecordError | None],
    ) -> DocumentBatch:
        """Return the documents of a block; None in `records` stands for a record to skip."""
        content: Scanned = block.content
        body, bounds, offset = content.body, content.spans.bounds, content.offset(block)
        rejected: list[Rejection] = []
        kept: list[int] = []
        good: list[Mapping[str, str]] = []
        for index, (record, (start, stop)) in enumerate(zip(records, bounds, strict=True)):
            if record is None:
                continue
            found = self._fields.too_long(stop - start) or (
                record if isinstance(record, UnfitRecordError) else self._problem(record)
            )
            if found:
                place, found_bytes = offset + start, body[start:stop]
                rejected.append(
                    Rejection(source, place, stop - start, found.reason, found.detail, found_bytes)
                )
            elif not isinstance(record, UnfitRecordError):
                kept.append(index)
                good.append(record)
        batch = self._batch(source, content, offset, kept, good, rejected)
        content.count_rest(block, batch)
        return batch

    def _problem(self, record: Mapping[str, str]) -> UnfitRecordError | None:
        """Return why a record has no usable text."""
        fields = self._fields
        if fields.rendering:
            return None
        if fields.text not in record:
            return missing_field(fields.text)
        try:
            if fields.no_loss:
                _spans(record.get(fields.no_loss))
        except UnfitRecordError as error:
            return error
        return None

    def _batch(
        self,
        source: int,
        content: Scanned,
        offset: int,
        kept: Sequence[int],
        records: Sequence[Mapping[str, str]],
        rejected: Sequence[Rejection],
    ) -> DocumentBatch:
        fields, spans = self._fields, content.spans
        starts = np.array(spans.starts, np.int64)[[*kept]]
        stops = np.array(spans.stops, np.int64)[[*kept]]
        if self._renderer:
            return self._renderer.render(
                source,
                records,
                starts + offset,
                stops - starts,
                as_found=lambda index: content.body[starts[index] : stops[index]],
                rejected=rejected,
            )
        return DocumentBatch(
            source,
            [record[fields.text] for record in records],
            positions=starts + offset,
            record_bytes=stops - starts,
            ids=[record.get(fields.id) for record in records] if fields.id else None,
            columns={name: [record.get(name) for record in records] for name in fields.keep},
            no_loss=[_spans(record.get(fields.no_loss)) for record in records]
            if fields.no_loss
            else None,
            rejected=[*rejected],
        )


def _spans(value: str | None) -> CharSpans:
    """Parse character ranges from JSON.

    Raises:
        UnfitRecordError: the value is not a list of ranges.
    """
    try:
        return char_spans(msgspec.json.decode(value) if value else None)
    except msgspec.DecodeError:
        return char_spans(value)
