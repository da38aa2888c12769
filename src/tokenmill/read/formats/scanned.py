"""The base of formats with records that can only be found by reading a file from its start.

In such a file, no byte alone shows whether a record starts there: a line end may be inside quotes,
or a bracket inside a string. So large files are streams: one process scans for the ends of records
and writes spool files of whole records. Each spool file starts with the opening of its source (a
header, an opening bracket), which is needed to read the records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from tokenmill.read.blocks import BOM, OpenRecord, Window, cut_blocks
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
from tokenmill.read.formats.rendered import RecordRenderer, documents_of
from tokenmill.read.values import UnfitRecordError

if TYPE_CHECKING:
    from tokenmill.core.records import DocumentBatch
    from tokenmill.read.formats.format import Extent
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


class Scanner:
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
        starts: list[int] = []
        stops: list[int] = []
        stop = 0
        while (start := self.start_of_next(data, stop, size)) < size:
            try:
                stop = self.end_of_record(data, start, size, final=final)
            except IncompleteRecord:
                return Spans(starts, stops, start)
            starts.append(start)
            stops.append(stop)
            if stop >= enough and not (final and stop == size):
                return Spans(starts, stops, stop)
        if final:
            self.check_end()
        return Spans(starts, stops, size)

    def start_of_next(self, data: bytearray, position: int, size: int) -> int:
        """Return the start of the next record after what is between records; `size` if none."""
        raise NotImplementedError

    def end_of_record(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        """Return the end of a record.

        Raises:
            IncompleteRecord: more bytes are needed.
        """
        raise NotImplementedError

    def end_of_long(self, data: bytearray, size: int) -> int:
        """Return the end of a record that is too long and started before `data`, or 0."""
        raise NotImplementedError

    def check_end(self) -> None:
        """Raise a DamagedInputError if the file must not end here."""


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
        self, path: Path, extent: Extent, source: Source, fields: Fields, block_bytes: int
    ) -> Iterator[Block]:
        with open(path, "rb") as stream:
            expect_sequential(stream)
            opening = stream.read(int.from_bytes(stream.read(_OPENING_SIZE_BYTES), "little"))
            is_first = not extent.start
            window = Window(stream, extent.start or len(opening), block_bytes)
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

    def find(final: bool) -> tuple[int, Spans, bool]:
        spans = scanner.scan(window.buffer, window.seen, window.size, final=final)
        return spans.consumed, spans, final and spans.consumed == window.seen

    most = scanner.most + 1 + scanner.kept
    window.size = window.wanted = min(window.size, most)
    for _, body, spans in cut_blocks(window, most, scanner.kept, find, scanner.end_of_long):
        yield body, spans or Spans([0], [len(body)], 0)  # of a long record, only the first is read


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
    """Turns records of strings, such as CSV rows, into documents for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._render = RecordRenderer(fields, is_flat=True).render

    def parse(
        self,
        block: Block,
        source: int,
        records: Sequence[Mapping[str, str] | UnfitRecordError | None],
    ) -> DocumentBatch:
        """Return the documents of a block; None in `records` stands for a record to skip."""
        content: Scanned = block.content
        too_long = self._fields.too_long
        judged = (
            None if record is None else too_long(stop - start) or record
            for record, (start, stop) in zip(records, content.spans.bounds, strict=True)
        )
        offset, bounds = content.offset(block), content.spans.bounds
        batch = documents_of(self._render, source, content.body, offset, bounds, judged)
        content.count_rest(block, batch)
        return batch
