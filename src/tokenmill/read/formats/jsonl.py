"""JSON Lines.

One record per line, parsed by msgspec. If a key appears twice, the last value wins, and each value
must have the right type. NaN and infinities, raw control characters, lone surrogates, text after
the value and invalid UTF-8 anywhere in the line are rejected. Numbers in fields that are not read
can have any size. A byte order mark at the start of a file and blank lines are counted and skipped.

A block is parsed in one call if that provably gives the same result as parsing line by line:
    every line starts with "{" and ends with "}"   a record cannot span lines, because no JSON
                                                   contains "}" followed by "{"
    as many records as lines                       so each line contains exactly one
    the whole block is valid UTF-8                 needed because the parser skips unread fields
Otherwise every line is parsed alone, and bad ones are rejected with a reason.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from tokenmill.core.records import DocumentBatch, Int64Array, Rejection
from tokenmill.read.blocks import BOM, iter_blocks
from tokenmill.read.compression import SNIFF_BYTES
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.foreign import LINE_SUFFIXES
from tokenmill.read.formats.format import Block, ByteFormat, Parse, opened
from tokenmill.read.formats.json_reasons import json_object, reason_of
from tokenmill.read.formats.json_records import (
    decode_block,
    line_bounds,
    parse_lines,
    require_memory,
)
from tokenmill.read.rendering.records import RecordRenderer
from tokenmill.read.values import char_spans, column_value, walk

if TYPE_CHECKING:
    from tokenmill.read.sources import Source

MAX_RECORDS = 100
PREVIEW_BYTES = 1 << 18
"""Most bytes read at the start of a file to find the names of fields."""
_OBJECT_START = re.compile(rb'\{\s*"')


class JsonLines(ByteFormat):
    """One JSON object per line."""

    libraries = ("msgspec",)

    def delimiter(self, fields: Fields) -> bytes:
        return b"\n"

    def sniff(self, head: bytes, name: Path) -> bool:
        """Return whether the first line is an object, or the name has a suffix of JSON Lines."""
        line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
        is_whole = newline or len(head) < SNIFF_BYTES
        is_object = _is_object(line) if is_whole else _OBJECT_START.match(line)
        return bool(is_object) or name.suffix.lower() in (".json", *LINE_SUFFIXES)

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Return names and dotted paths of fields in the first records; empty if unreadable."""
        with opened(source) as stream:
            blocks = iter_blocks(stream, 0, None, b"\n", PREVIEW_BYTES, fields.max_record)
            _, first = next(blocks, (0, b""))
        require_memory(len(first))
        found: set[str] = set()
        for line in first.removeprefix(BOM).splitlines()[:MAX_RECORDS]:
            try:
                found.update(paths(msgspec.json.decode(line), ""))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
        if found:
            for name in fields.required_texts:
                require_field(name, found, source.where)
        return found

    def parser(self, fields: Fields) -> Parse:
        if fields.rendering:
            return RenderingParser(fields).parse
        parser = JsonlParser(fields)

        def parse(block: Block, source: Source) -> DocumentBatch:
            return parser.parse(block.content, block.start, source.index)

        return parse


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def paths(value: object, prefix: str) -> Iterator[str]:
    """Yield the names and dotted paths of all fields of a record."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield prefix + key
            yield from paths(member, f"{prefix}{key}.")


class JsonlParser:
    """Parses blocks of lines for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._text_path = fields.text.split(".")
        self._extra = {name: name.split(".") for name in fields.extra}
        record, text_of = _record_type(self._text_path, self._extra)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(record)
        self._text_of = text_of

    def parse(self, block: bytes, offset: int, source: int) -> DocumentBatch:
        """Return the documents of `block`, which starts at byte `offset` of the source."""
        bom_bytes = len(BOM) if offset == 0 and block.startswith(BOM) else 0
        body = block[bom_bytes:] if bom_bytes else block
        require_memory(len(body))
        starts, stops = line_bounds(body)
        may_be_long = len(body) > self._fields.max_record
        records = None if may_be_long else decode_block(self._decoder, body, starts, stops)
        if records is not None:
            batch = DocumentBatch(
                source,
                texts=[self._text_of(record) for record in records],
                positions=starts + (offset + bom_bytes),
                record_bytes=stops - starts,
            )
            if not self._extra or self._add_extra(batch, records):
                batch.bom_bytes = bom_bytes
                return batch
        batch = self.parse_each(body, offset + bom_bytes, source, starts, stops)
        batch.bom_bytes = bom_bytes
        return batch

    def parse_each(
        self, body: bytes, offset: int, source: int, starts: Int64Array, stops: Int64Array
    ) -> DocumentBatch:
        """Return the documents of `body`; record i is in bytes [starts[i], stops[i])."""
        found = parse_lines(self._parse_line, body, offset, source, starts, stops)
        batch = DocumentBatch(
            source,
            texts=[self._text_of(record) for record in found.records],
            positions=starts[found.kept] + offset,
            record_bytes=(stops - starts)[found.kept],
            rejected=found.rejected,
            blank_bytes=found.blank_bytes,
        )
        if self._extra and not self._add_extra(batch, found.records):
            raise AssertionError("a line with unusable fields was not rejected")
        return batch

    def _parse_line(self, line: bytes) -> Any:
        """Parse the record of a line, or return why that fails as (reason, detail)."""
        if problem := self._fields.too_long(len(line)):
            return problem
        try:
            line.decode()
        except UnicodeDecodeError as error:
            return "invalid-utf8", f"{error.reason} at byte {error.start} of the record"
        try:
            record = self._decoder.decode(line)
        except msgspec.MsgspecError as error:
            return reason_of(line, error, self._text_path)
        except RecursionError:
            return "invalid-json", "nested too deeply"
        return self._problem_in_extra(record) or record

    def _problem_in_extra(self, record: Any) -> tuple[str, str] | None:
        """Return why a field other than the text cannot be used as (reason, detail)."""
        for name in self._extra:
            try:
                value = self._extra_value(record, name)
                if name == self._fields.no_loss:
                    char_spans(value)
            except msgspec.MsgspecError as error:  # the JSON is valid, so the cause is a number
                return "number-out-of-range", f"{name!r}: {error}"
            except ValueError as error:
                return "invalid-spans", str(error)
        return None

    def _extra_value(self, record: Any, name: str) -> object:
        path = self._extra[name]
        node, depth = record, 1
        while isinstance(getattr(node, _attribute(path[:depth]), None), msgspec.Struct):
            node, depth = getattr(node, _attribute(path[:depth])), depth + 1
        raw = getattr(node, _attribute(path[:depth]), None)
        if raw is None or isinstance(raw, str):  # the text is decoded already
            return walk(raw, path[depth:])
        return walk(msgspec.json.decode(raw), path[depth:])

    def _add_extra(self, batch: DocumentBatch, records: Sequence[Any]) -> bool:
        """Fill ids, columns and spans; return False if the lines must be parsed one by one."""
        try:
            values = {
                name: [self._extra_value(record, name) for record in records]
                for name in self._extra
            }
        except msgspec.MsgspecError:
            return False
        if self._fields.id:
            batch.ids = [column_value(value) for value in values[self._fields.id]]
        batch.columns = {
            name: [column_value(value) for value in values[name]] for name in self._fields.keep
        }
        if self._fields.no_loss:
            try:
                batch.no_loss = [char_spans(value) for value in values[self._fields.no_loss]]
            except ValueError:
                return False
        return True


class RenderingParser:
    """Parses blocks of lines into records and renders them, for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._renderer = RecordRenderer(fields)
        self._decoder = msgspec.json.Decoder(_object_type(fields.wanted))

    def parse(self, block: Block, source: Source) -> DocumentBatch:
        """Return the documents of a block."""
        bom_bytes = len(BOM) if block.start == 0 and block.content.startswith(BOM) else 0
        body, offset, index = block.content[bom_bytes:], block.start + bom_bytes, source.index
        require_memory(len(body))
        starts, stops = line_bounds(body)
        may_be_long = len(body) > self._fields.max_record
        records = None if may_be_long else decode_block(self._decoder, body, starts, stops)
        if records is None:
            batch = self.parse_each(body, offset, index, starts, stops)
        else:
            batch = self._render(body, offset, index, starts, stops, records)
        batch.bom_bytes = bom_bytes
        return batch

    def parse_each(
        self, body: bytes, offset: int, source: int, starts: Int64Array, stops: Int64Array
    ) -> DocumentBatch:
        """Return the documents of `body`; record i is in bytes [starts[i], stops[i])."""
        found = parse_lines(self._parse_line, body, offset, source, starts, stops)
        bounds = starts[found.kept], stops[found.kept]
        batch = self._render(body, offset, source, *bounds, found.records, found.rejected)
        batch.blank_bytes = found.blank_bytes
        return batch

    def _render(
        self,
        body: bytes,
        offset: int,
        source: int,
        starts: Int64Array,
        stops: Int64Array,
        records: Sequence[Any],
        rejected: Sequence[Rejection] = (),
    ) -> DocumentBatch:
        return self._renderer.render(
            source,
            records,
            starts + offset,
            stops - starts,
            as_found=lambda index: body[starts[index] : stops[index]],
            rejected=rejected,
        )

    def _parse_line(self, line: bytes) -> Any:
        """Parse the record of a line, or return why that fails as (reason, detail)."""
        if problem := self._fields.too_long(len(line)):
            return problem
        try:
            line.decode()
            return self._decoder.decode(line)
        except UnicodeDecodeError as error:
            return "invalid-utf8", f"{error.reason} at byte {error.start} of the record"
        except RecursionError:
            return "invalid-json", "nested too deeply"
        except msgspec.MsgspecError as error:
            found = json_object(line, error)
            return found if isinstance(found, tuple) else ("number-out-of-range", str(error))


def _object_type(wanted: Sequence[str] | None) -> Any:
    """Return a type with any value under the first keys of the paths; all keys if None."""
    if wanted is None:
        return dict[str, Any]
    keys = {name.partition(".")[0]: Any for name in wanted}
    return TypedDict("Record", keys, total=False)  # type: ignore[operator]


def _attribute(path: Sequence[str]) -> str:
    """Return a Python name for a JSON path; msgspec maps it back to the key."""
    return "f_" + "_".join(key.encode().hex() for key in path)


def _record_type(text_path: list[str], extra: dict[str, list[str]]) -> tuple[type, Any]:
    """Return a struct with a strict text and raw other fields, and a getter for the text."""

    def struct(depth: int) -> type:
        prefix = text_path[:depth]
        keys = {
            path[depth]
            for path in extra.values()
            if path[:depth] == prefix and len(path) > depth and path[depth] != text_path[depth]
        }
        kind = str if depth + 1 == len(text_path) else struct(depth + 1)
        members: list[Any] = [(_attribute(text_path[: depth + 1]), kind)]
        members += [(_attribute([*prefix, key]), msgspec.Raw, None) for key in sorted(keys)]
        rename = {_attribute([*prefix, key]): key for key in {*keys, text_path[depth]}}
        return msgspec.defstruct("Record", members, rename=rename, gc=False)

    names = [_attribute(text_path[: depth + 1]) for depth in range(len(text_path))]
    return struct(0), operator.attrgetter(".".join(names))
