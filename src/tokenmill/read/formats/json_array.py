"""JSON files with an array of records, or with consecutive records that span several lines.

A scan for quotes and brackets finds the end of each element. Elements are parsed by msgspec, with
the rules of JSON Lines. An array without an end is truncated. A missing or superfluous comma, and
anything but white space after the end of an array, are damage.

An element with a stray quote or bracket seems to end in the wrong place. If elements start on their
own lines, the bad element is rejected up to the next line that starts like the first element. If
all elements are on one line, the start of the next one is unknown, and the file is damaged.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.core.errors import one_line
from tokenmill.core.records import DocumentBatch
from tokenmill.read.blocks import BOM
from tokenmill.read.compression import damaged
from tokenmill.read.fields import Fields
from tokenmill.read.foreign import LINE_SUFFIXES, PLAIN_SUFFIXES
from tokenmill.read.formats.format import Block, Extent, Parse
from tokenmill.read.formats.json_records import (
    PREVIEW_BYTES,
    JsonParser,
    fields_of,
    require_memory,
)
from tokenmill.read.formats.scanned import IncompleteRecord, Scanned, ScannedFormat, Scanner

if TYPE_CHECKING:
    from tokenmill.read.source import Source

MAX_WASTED_BYTES = 1 << 30
"""Most bytes scanned for the ends of elements without an end."""
_WHITE_SPACE = b" \t\r\n"
_OPENING = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*+(\[[ \t\r\n]*+)?")
_BETWEEN = re.compile(rb"[ \t\r\n]*+(?:(,)[ \t\r\n]*+)?")
_ELEMENT, _BAD = b"{", b"?"
_MAY_FOLLOW = {
    b"[": (_ELEMENT, b"]"),
    _ELEMENT: (b",", b"]"),
    _BAD: (_ELEMENT, b",", b"]"),  # its end is not certain
    b",": (_ELEMENT,),
    b"]": (),
}
"""What may follow each part of an array."""
MAX_SHOWN_BYTES = 40
_SCALAR = re.compile(rb'[^ \t\r\n,\[\]{}"]++')
_PRETTY = re.compile(rb'(?:\{[ \t\r]*\n\s*["}]|\[[ \t\r]*\n\s*["{\[\]])')
_ARRAY = re.compile(rb'\[\s*(?:\{\s*["}]|\[\s*["{\[]|"(?:[^"\\\n]|\\.)*"\s*[,\]])')


class JsonArray(ScannedFormat):
    """One JSON array, or JSON objects over several lines."""

    libraries = ("msgspec",)

    def sniff(self, head: bytes, name: Path) -> bool:
        """Return whether a file starts like an array of records, or with a multi-line object."""
        suffix = name.suffix.lower()
        if suffix in PLAIN_SUFFIXES:
            return False
        start = head.removeprefix(BOM).lstrip()
        if _PRETTY.match(start):
            return True
        is_array = _ARRAY.match(start) or (suffix == ".json" and start.startswith(b"["))
        return bool(is_array) and suffix not in LINE_SUFFIXES

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Return names and dotted paths of fields in the first records; empty if unreadable."""
        blocks = self.blocks(source, Extent(source.index), fields, PREVIEW_BYTES)
        for block in blocks:
            _, body, spans = block.content
            records = (body[start:stop] for start, stop in spans.bounds)
            return fields_of(records, fields, source.where)
        return set()

    def opening_bytes(self, data: bytearray, size: int, *, final: bool) -> int | None:
        """Return the size of white space and the opening bracket before the first element."""
        found = _OPENING.match(data, 0, size)
        stop = found.end() if found else 0
        return stop if stop < size else None

    def scanner(self, opening: bytes, where: str, max_record: int, *, whole: bool) -> Scanner:
        """Return a scanner that finds elements."""
        return _ElementScanner(opening, where, max_record, whole=whole)

    def parser(self, fields: Fields) -> Parse:
        """Return a parser that turns elements into documents."""
        parser = JsonParser(fields)

        def parse(block: Block, source: Source) -> DocumentBatch:
            content: Scanned = block.content
            _, body, spans = content
            require_memory(len(body))
            bounds = list(spans.bounds)
            batch = parser.parse_each(body, content.offset(block), source.index, bounds)
            content.count_rest(block, batch)
            return batch

        return parse


def _element_pattern(string: bytes) -> re.Pattern[bytes]:
    """Return a pattern for objects and arrays up to three levels deep; others are slower."""
    pattern = rb'[^"{}\[\]]++|' + string
    for _ in range(3):
        inside = rb"(?:" + pattern + rb")*+"
        pattern = rb'[^"{}\[\]]++|%s|\{%s\}|\[%s\]' % (string, inside, inside)
    return re.compile(rb"\{(?:%s)*+\}|\[(?:%s)*+\]" % (pattern, pattern), re.DOTALL)


class _Grammar:
    """Patterns that separate elements from their surroundings."""

    def __init__(self, string: bytes) -> None:
        self.string = re.compile(string, re.DOTALL)
        self.element = _element_pattern(string)
        self.token = re.compile(rb'[^"{}\[\]]++|%s|[{}\[\]]' % string, re.DOTALL)


_ANY_STRING = _Grammar(rb'"(?:[^"\\]++|\\.)*+"')
_STRING_IN_LINE = _Grammar(rb'"(?:[^"\\\n]++|\\[^\n])*+"')
"""JSON strings contain no line end, so a line end reveals a stray quote."""


class _ElementScanner(Scanner):
    """Finds the elements of one file."""

    def __init__(self, opening: bytes, where: str, max_record: int, *, whole: bool) -> None:
        text = opening.removeprefix(BOM)
        self._is_array = b"[" in text
        self._line = b"\n" + text.rpartition(b"\n")[2]
        """Text before the first element on its line, if elements have their own lines."""
        self._has_lines = not self._is_array or b"\n" in text.partition(b"[")[2]
        self._grammar = _STRING_IN_LINE if self._has_lines else _ANY_STRING
        self._where, self._whole, self.most = where, whole, max_record
        self.kept = len(self._line) + 1
        self._before = b"[" if whole else _BAD
        """The last part of the array, a key of `_MAY_FOLLOW`."""
        self._wasted = 0

    def start_of_next(self, data: bytearray, position: int, size: int) -> int:
        """Return the start of the next element, after commas and the bracket at the end."""
        while (start := self._after_between(data, position, size)) < size:
            if data[start] not in b",]":
                break
            self._take(bytes(data[start : start + 1]), data, start, size)
            position = start + 1
        return start

    def end_of_record(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        before = self._before
        self._take(_ELEMENT, data, start, size)
        try:
            return self._end_of_element(data, start, size, final=final)
        except IncompleteRecord:
            self._before = before
            raise

    def check_end(self) -> None:
        if self._whole and self._is_array and self._before != b"]":
            raise damaged(self._where, "the array does not end: the file is truncated")

    def _after_between(self, data: bytearray, position: int, size: int) -> int:
        """Return the next place that is not white space, after at most one comma."""
        found = _BETWEEN.match(data, position, size)
        if found and found[1]:
            self._take(b",", data, found.start(1), size)
        return found.end() if found else position

    def _take(self, part: bytes, data: bytearray, start: int, size: int) -> None:
        """Note the next part of the file; raise a DamagedInputError if it must not follow."""
        if part not in (_MAY_FOLLOW[self._before] if self._is_array else (_ELEMENT,)):
            stop = min(start + MAX_SHOWN_BYTES, size)
            shown = one_line(data[start:stop].decode(errors="replace"))
            why = "a comma is missing" if part == _ELEMENT else "a value is missing"
            if self._before == b"]":
                why = "there is more data after the end of the array"
            raise damaged(self._where, f"{why}, before {shown!r}")
        self._before = part

    def _end_of_element(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        """Return the end of an element, or the start of the next one."""
        limit = min(start + self.most, size)
        stop = self._end_by_brackets(data, start, limit)
        if stop > 0 and (stop < size or final or data[stop - 1] in b'}]"'):
            return stop
        if stop >= 0 and not final and limit == size:
            raise IncompleteRecord
        self._wasted += abs(stop) - start if stop < 0 else limit - start
        return self._after_bad(data, start, size, final=final)

    def _end_by_brackets(self, data: bytearray, start: int, limit: int) -> int:
        """Return the end of an element; 0 if unknown, -n if byte n shows that it is bad."""
        first = data[start]
        if first not in b"{[":
            pattern = self._grammar.string if first == ord('"') else _SCALAR
            found = pattern.match(data, start, limit)
            return found.end() if found else self._at_fault(data, start, limit)
        if found := self._grammar.element.match(data, start, limit):
            return found.end()
        open_brackets = bytearray()
        position = start
        while position < limit:
            token = self._grammar.token.match(data, position, limit)
            if not token:
                return self._at_fault(data, position, limit)
            kind, position = data[position], token.end()
            if kind in b"{[":
                open_brackets.append(kind + 2)  # the code of the bracket that closes it
            elif kind in b"}]":
                if open_brackets.pop() != kind:
                    return -position
                if not open_brackets:
                    return position
        return 0

    def _at_fault(self, data: bytearray, position: int, limit: int) -> int:
        """Decide what an unclosed quote or an unopened bracket means."""
        if data[position] != ord('"'):
            return -position - 1
        line_end = data.find(b"\n", position, limit) if self._has_lines else -1
        return -line_end if line_end > 0 else 0

    def _after_bad(self, data: bytearray, start: int, size: int, *, final: bool) -> int:
        """Return the end of a bad element: the next line that starts like the first element."""
        self._before = _BAD
        if not self._has_lines or self._wasted > MAX_WASTED_BYTES:
            found = "an element has a stray quote or bracket, or is longer than --max-record"
            raise damaged(self._where, f"{found}, and no next element can be found")
        stop = data.find(self._line + b"{", start, size)
        if stop < 0 and not final:
            raise IncompleteRecord
        end = len(data[start : size if stop < 0 else stop].rstrip(_WHITE_SPACE)) + start
        if stop < 0 and self._is_array and data[end - 1] == ord("]"):
            end = start + len(data[start : end - 1].rstrip(_WHITE_SPACE))
        return end - 1 if data[end - 1] == ord(",") else end

    def end_of_long(self, data: bytearray, size: int) -> int:
        """Return the start of the next line that starts like the first element."""
        stop = data.find(self._line + b"{", 0, size)
        if body := data[:size].rstrip(_WHITE_SPACE):  # or an earlier part has the last bracket
            self._before = b"]" if stop < 0 and body.endswith(b"]") else _BAD
        return stop + 1
