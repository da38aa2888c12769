"""CSV and TSV: a first row that names the columns, and a row for every record.

Rows are parsed as by Python's `csv` module: fields are separated by a comma (or tab) and may be
quoted with "; quoted fields can contain line ends and doubled quotes. A row ends with a line feed,
a carriage return or both. Empty lines are counted and skipped. A scan finds the ends of rows and
continues after a bad quote like `csv` when it is not strict. Each row is then parsed by strict
`csv` alone.

A quote that is never closed would turn the rest of a file into one record. Instead, only its own
line is rejected: no later quote closes it, so no later field spans several lines. A quote that is
not closed within `MAX_QUOTED_BYTES`, or the limit for records if that is more, counts as never
closed. If it is closed after the limit for records, its row is rejected as too long.
"""

from __future__ import annotations

import csv
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.core.errors import UserError, one_line
from tokenmill.core.records import DocumentBatch
from tokenmill.core.suggestions import nearest
from tokenmill.read.blocks import BOM, Window
from tokenmill.read.fields import Fields, field_hint
from tokenmill.read.formats.format import FORMATS, Block, Parse, opened
from tokenmill.read.formats.scanned import (
    MAX_OPENING_BYTES,
    FlatParser,
    IncompleteRecord,
    Scanned,
    ScannedFormat,
    Scanner,
)
from tokenmill.read.values import UnfitRecordError, not_utf8

if TYPE_CHECKING:
    from tokenmill.read.source import Source

PREVIEW_BYTES = 1 << 16
MAX_QUOTED_BYTES = 128 << 20
"""Bytes in which the closing quote of a row is looked for, however short records must be.

Otherwise the lines of a row over the limit would be taken for rows, and become documents.
"""
MAX_SHOWN_COLUMNS = 20
MAX_SHOWN_NAME = 60
_LIMIT = threading.Lock()
_LINE_END = re.compile(rb"\r\n?|\n")


class Csv(ScannedFormat):
    """Comma-separated values with a header."""

    delimiter_byte = b","
    suffixes: tuple[str, ...] = (".csv",)

    def sniff(self, head: bytes, name: Path) -> bool:
        """Detect by the name alone, because prose has commas, too."""
        return name.suffix.lower() in self.suffixes

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Return the names of the columns."""
        with opened(source) as stream:
            opening = self.read_opening(Window(stream, 0, PREVIEW_BYTES), source.where)
        names = self.column_names(opening)
        if names:
            _refuse_json(opening, source)
            _require_column(fields, names, source.where)
        return {*names}

    def opening_bytes(self, data: bytearray, size: int, *, final: bool) -> int | None:
        """Return the size of the byte order mark, empty lines, and the header row."""
        start = len(BOM) if data.startswith(BOM) else 0
        head = bytes(memoryview(data)[start:size])
        start += len(head) - len(head.lstrip(b"\r\n"))
        scanner = RowScanner(self.delimiter_byte, 2 * MAX_OPENING_BYTES)
        try:
            return scanner.end_of_record(data, start, size, final=final) if start < size else None
        except IncompleteRecord:
            return None

    def scanner(self, opening: bytes, where: str, max_record: int, *, whole: bool) -> Scanner:
        """Return a scanner that finds rows."""
        return RowScanner(self.delimiter_byte, max(max_record, MAX_QUOTED_BYTES))

    def parser(self, fields: Fields) -> Parse:
        """Return a parser that turns rows into documents."""
        return _RowParser(self, fields).parse

    def column_names(self, opening: bytes) -> list[str]:
        """Return the names in a header; empty if it cannot be read."""
        with _long_fields():
            try:
                return self.row(opening.removeprefix(BOM).lstrip(b"\r\n"))
            except (UnicodeDecodeError, csv.Error):
                return []

    def row(self, record: bytes) -> list[str]:
        """Return the fields of one row.

        Raises:
            UnicodeDecodeError: the row is not UTF-8.
            csv.Error: the row is not valid CSV.
        """
        return next(self.rows([record.decode()]), [])

    def rows(self, records: Sequence[str]) -> Iterator[list[str]]:
        """Yield the fields of rows; a bad row raises a csv.Error or swallows the next one."""
        return csv.reader(records, delimiter=self.delimiter_byte.decode(), strict=True)


class Tsv(Csv):
    """Tab-separated values with a header, quoted like CSV."""

    delimiter_byte = b"\t"
    suffixes = (".tsv",)


class RowScanner(Scanner):
    """Finds the ends of rows."""

    kept = 1

    def __init__(self, delimiter: bytes, most: int) -> None:
        self.most = most
        mark = re.escape(delimiter)
        field = rb'(?:"(?:[^"]++|"")*+"[^%s\r\n]*+|(?!")[^%s\r\n]*+)' % (mark, mark)
        fields = rb"%s(?:%s%s)*+" % (field, mark, field)
        self._row = re.compile(rb"%s(?:\r\n?|\n|\Z)" % fields)
        self._whole_fields = re.compile(rb"(?:%s%s)*+" % (field, mark))

    def start_of_next(self, data: bytearray, position: int, size: int) -> int:
        """Skip empty lines."""
        while position < size and data[position] in b"\r\n":
            position += 1
        return position

    def end_of_record(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        if not (stop := self._end_of_row(data, start, size, final=final)):
            raise IncompleteRecord
        return stop

    def _end_of_row(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        """Return the end of a row; 0 if more bytes are needed to know it."""
        limit = min(start + self.most, size)
        if found := self._row.match(data, start, limit):
            stop = found.end()
            if data[stop - 1] == ord("\r") and stop < size:
                return stop + (data[stop] == ord("\n"))
            ends = data[stop - 1] == ord("\n") or (final and stop == size)
            if ends or stop < limit:  # at the limit, a line feed or more of a field may follow
                return stop
        if not final and size - start <= self.most:
            return 0
        whole = self._whole_fields.match(data, start, limit)
        last = whole.end() if whole else start
        line_end = _LINE_END.search(data, last, size)
        if line_end and (line_end.end() < size or final):
            return line_end.end()
        return size if final else 0

    def end_of_long(self, data: bytearray, size: int) -> int:
        """Return the end of a row whose quotes do not matter: of a line."""
        found = _LINE_END.search(data, 0, size)
        return found.end() if found and found.end() < size else 0


class _RowParser:
    """Parses blocks of rows for a set of fields."""

    def __init__(self, form: Csv, fields: Fields) -> None:
        self._form, self._fields = form, fields
        self._flat = FlatParser(fields)
        self._header: tuple[bytes, list[str]] = (b"", [])

    def parse(self, block: Block, source: Source) -> DocumentBatch:
        """Return the documents of a block."""
        content: Scanned = block.content
        if self._header[0] != content.opening:
            self._header = content.opening, self._form.column_names(content.opening)
        names = self._header[1]
        twice = _named_twice(self._fields, names)
        problem = (
            UnfitRecordError("invalid-csv", f"two columns are named {twice!r}") if twice else None
        )
        records: list[dict[str, str] | UnfitRecordError] = [
            problem or (row if isinstance(row, UnfitRecordError) else _record(names, row))
            for row in self._rows(content)
        ]
        return self._flat.parse(block, source.index, records)

    def _rows(self, content: Scanned) -> list[list[str] | UnfitRecordError]:
        """Return the fields of each row, or the reason why it cannot be used.

        A row that is too long has no fields: it will be rejected, and may take much memory.
        """
        _, body, spans = content
        too_long = self._fields.too_long
        bounds = [
            (start, start if too_long(stop - start) else stop) for start, stop in spans.bounds
        ]
        with _long_fields():
            try:
                lines = [body[start:stop].decode() for start, stop in bounds]
                rows: list[list[str] | UnfitRecordError] = [*self._form.rows(lines)]
                if len(rows) == len(lines):  # each row gives at most one, so all are complete
                    return rows
            except (UnicodeDecodeError, csv.Error):
                pass
            return [self._row(body[start:stop]) for start, stop in bounds]

    def _row(self, record: bytes) -> list[str] | UnfitRecordError:
        try:
            found = self._form.row(record)
        except UnicodeDecodeError as error:
            return not_utf8(error, "the record")
        except csv.Error as error:
            is_open = "unexpected end" in str(error)
            return UnfitRecordError("unclosed-quote" if is_open else "invalid-csv", str(error))
        return found


def _record(names: list[str], row: list[str]) -> dict[str, str] | UnfitRecordError:
    if len(row) != len(names):
        detail = f"the row has {len(row):,} fields, but the header has {len(names):,}"
        return UnfitRecordError("ragged-row", detail)
    return dict(zip(names, row, strict=True))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Remove the limit of `csv` on the size of fields, which is global to the process."""
    with _LIMIT:
        before = csv.field_size_limit(sys.maxsize)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def _refuse_json(opening: bytes, source: Source) -> None:
    """Raise a UserError if the first row of a file looks like JSON."""
    for name in ("json-array", "jsonl"):
        if FORMATS[name].sniff(opening, Path()):
            line = opening.removeprefix(BOM).strip()[:MAX_SHOWN_NAME].rstrip()
            raise UserError(
                f"an input looks like {name}, not like {source.format}",
                where=source.where,
                why=f"its first line begins with {one_line(line.decode(errors='replace'))}",
                hint=f"omit --format {source.format}, or also add "
                f"--format '{Path(source.name).name}={name}'",
            )


def _require_column(fields: Fields, names: Sequence[str], where: str) -> None:
    """Raise a UserError if a column for the texts is missing or appears twice."""
    shown = ", ".join(name[:MAX_SHOWN_NAME] for name in names[:MAX_SHOWN_COLUMNS])
    more = f" and {len(names) - MAX_SHOWN_COLUMNS:,} more" * (len(names) > MAX_SHOWN_COLUMNS)
    why = f"the first row must name the columns; it names {one_line(shown)}{more}"
    for name in fields.required_texts:
        if name not in names:
            hint = field_hint(name, names)
            if any("\0" in each for each in names):
                hint = "if it is UTF-16, convert it: iconv -f UTF-16LE -t UTF-8"
            elif not nearest(name, names):
                hint += "; if the file is plain text: --format text"
            raise UserError(f"cannot find the column {name!r}", where=where, why=why, hint=hint)
    if twice := _named_twice(fields, names):
        hint = "give each column a different name"
        raise UserError(f"two columns are named {twice!r}", where=where, why=why, hint=hint)


def _named_twice(fields: Fields, names: Sequence[str]) -> str:
    """Return the name of a wanted column that appears twice; "" if there is none."""
    if len({*names}) == len(names):
        return ""
    wanted = names if fields.wanted is None else fields.wanted
    return next((name for name in wanted if names.count(name) > 1), "")
