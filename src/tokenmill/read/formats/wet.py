"""WET files of Common Crawl: the plain text of web pages, in WARC records of type conversion.

A record consists of a version line, headers, an empty line, and Content-Length bytes of text (ISO
28500, https://iipc.github.io/warc-specifications/). Records of other types, such as the description
of the file, are skipped. If the length of a record does not end at the next record, it is rejected
up to the next line that starts a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokenmill.core.errors import UserError
from tokenmill.core.records import DocumentBatch
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.foreign import ADVICE, holds_wet
from tokenmill.read.formats.format import Block, Extent, Parse
from tokenmill.read.formats.scanned import (
    FlatParser,
    IncompleteRecord,
    Scanned,
    ScannedFormat,
    Scanner,
)
from tokenmill.read.values import UnfitRecordError, not_utf8

if TYPE_CHECKING:
    from tokenmill.read.source import Source

TEXT = "text"
"""The name of the text field; all other fields are headers."""
MAX_HEAD_BYTES = 1 << 16
MAX_WASTED_BYTES = 1 << 33
"""Most bytes read because of wrong lengths of bad records in one file."""
MAX_LINE_ENDS = 1 << 16
"""Most bytes of line ends after a record that are searched for the next record."""
PREVIEW_BYTES = 1 << 18
VERSION_BYTES = len(b"WARC/1.0\r\n")
_SEPARATOR = b"\r\n\r\n"
_VERSION = re.compile(rb"WARC/\d\.\d\r?\n")
_NEXT = re.compile(rb"\nWARC/\d\.\d\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"\ncontent-length[ \t]*:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
_HEADER = re.compile(rb"(?m)^([^\s:]+)[ \t]*:[ \t]*([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)")
_LINE_ENDS = re.compile(rb"[\r\n]*+")


class Wet(ScannedFormat):
    """WARC records of plain text."""

    def sniff(self, head: bytes, name: Path) -> bool:
        """Return whether the first records are text, or the name has a suffix of WET."""
        return holds_wet(head, name.suffix.lower())

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Return the text field and the headers of the first records.

        Raises:
            UserError: the records are raw web pages instead of text.
        """
        found, types = {TEXT}, set()
        if first := next(self.blocks(source, Extent(source.index), fields, PREVIEW_BYTES), None):
            _, body, spans = first.content
            for start, stop in spans.bounds:
                record = body[start:stop]
                found |= {name.decode(errors="replace") for name, _ in _headers(record)}
                types.add(_type_of(record))
        if types & {b"request", b"response", b"resource"} and b"conversion" not in types:
            raise UserError(
                "cannot read text from a WARC file",
                where=source.where,
                why="its records are raw web pages; WET files contain the extracted text",
                hint=ADVICE["WARC"],
            )
        lower = {name.lower() for name in found}
        found |= {name for name in fields.wanted or () if name.lower() in lower}
        for name in fields.required_texts:
            require_field(name, found, source.where)
        return found

    def opening_bytes(self, data: bytearray, size: int, *, final: bool) -> int | None:
        """Return 0: the first bytes are a record, even if it is skipped."""
        return 0

    def scanner(self, opening: bytes, where: str, max_record: int, *, whole: bool) -> Scanner:
        """Return a scanner that finds records."""
        return _RecordScanner(where, max_record)

    def parser(self, fields: Fields) -> Parse:
        """Return a parser that turns records into documents."""
        flat = FlatParser(fields)
        names = {name.lower(): name for name in fields.wanted or ()}

        def parse(block: Block, source: Source) -> DocumentBatch:
            content: Scanned = block.content
            pieces = (content.body[start:stop] for start, stop in content.spans.bounds)
            return flat.parse(block, source.index, [_record(piece, names) for piece in pieces])

        return parse


class _Head(NamedTuple):
    """The start of a record's text, and its number of bytes."""

    end: int
    length: int


def _head_of(data: bytearray | bytes, start: int, size: int) -> _Head | None:
    """Return the head of the record at `start`, or None if there is none."""
    if not _VERSION.match(data, start, size):
        return None
    end = _HEAD_END.search(data, start, min(size, start + MAX_HEAD_BYTES))
    length = _LENGTH.search(data, start, end.end()) if end else None
    return _Head(end.end(), int(length[1])) if end and length else None


class _RecordScanner(Scanner):
    """Finds the records of one file."""

    kept = VERSION_BYTES + 1

    def __init__(self, where: str, max_record: int) -> None:
        self._where, self.most = where, max_record
        self._wasted = 0

    def start_of_next(self, data: bytearray, position: int, size: int) -> int:
        return _after_line_ends(data, position, size)

    def end_of_record(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        """Return the end of a record of any type; a bad one extends to the next one."""
        head = _head_of(data, start, size)
        if head and head.length <= self.most:
            stop = head.end + head.length
            if data.startswith(_SEPARATOR, stop) and stop + len(_SEPARATOR) <= size:
                return stop
            last = min(stop + MAX_LINE_ENDS, size)
            following = _after_line_ends(data, min(stop, size), last)
            if not final and size - following < VERSION_BYTES and following - stop < MAX_LINE_ENDS:
                raise IncompleteRecord
            if stop <= size and (following == last or _VERSION.match(data, following, size)):
                return stop
            self._waste(head.length)
        elif not head and not final and size - start < MAX_HEAD_BYTES:
            raise IncompleteRecord
        return self._start_of_next(data, start, size, final=final)

    def _start_of_next(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        """Return the end of a bad record: the next line that starts a record."""
        found = _NEXT.search(data, start, size)
        if not found and not final:
            raise IncompleteRecord
        stop = found.start() if found else size
        return start + len(data[start:stop].rstrip(b"\r\n"))

    def end_of_long(self, data: bytearray, size: int) -> int:
        """Return the end of the line before the next record."""
        found = _NEXT.search(data, 0, size)
        return found.start() + 1 if found else 0

    def _waste(self, num_bytes: int) -> None:
        self._wasted += num_bytes
        if self._wasted > MAX_WASTED_BYTES:
            raise damaged(self._where, "too many records have a wrong Content-Length")


def _after_line_ends(data: bytearray, position: int, size: int) -> int:
    found = _LINE_ENDS.match(data, position, size)
    return found.end() if found else position


def _headers(record: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the raw headers of a record, with folded lines joined."""
    version = _VERSION.match(record)
    end = _HEAD_END.search(record)
    if not version or not end:
        return
    for found in _HEADER.finditer(record, version.end(), end.start()):
        yield found[1], re.sub(rb"\r?\n[ \t]+", b" ", found[2])


def _type_of(record: bytes) -> bytes:
    types = [value for name, value in _headers(record) if name.lower() == b"warc-type"]
    return types[-1].strip().lower() if types else b""


def _record(record: bytes, names: dict[str, str]) -> dict[str, str] | UnfitRecordError | None:
    """Return the wanted fields of a record (all if `names` is empty); None to skip it."""
    head = _head_of(record, 0, len(record))
    if not head:
        return UnfitRecordError("invalid-warc", "expected a record header with a Content-Length")
    if head.end + head.length != len(record):
        detail = f"the Content-Length {head.length:,} does not end at the next record"
        return UnfitRecordError("invalid-warc", detail)
    if _type_of(record) != b"conversion":
        return None
    try:
        fields: dict[str, str] = {}
        for name, value in _headers(record):
            key = name.decode()
            if not names:
                fields[key] = value.decode()
            elif key.lower() in names:
                fields[names[key.lower()]] = value.decode()
        return {**fields, TEXT: record[head.end :].decode()}
    except UnicodeDecodeError as error:
        return not_utf8(error, "the text")
