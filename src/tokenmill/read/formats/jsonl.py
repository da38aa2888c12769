"""JSON Lines: blocks of lines to document batches.

One record a line, read by msgspec. Duplicate keys: the last one counts, and each must have the
right type. NaN and infinities, raw control characters, lone surrogates, text after the value and
invalid UTF-8 anywhere in the line are refused; numbers in fields that are not read may be of any
size. A byte order mark at the start of a file and lines of white space are counted and skipped.

A block is parsed in one call where that call provably means the same as parsing line by line:
    every line starts with "{" and ends with "}"   a record cannot go on after a line's end,
                                                   because no JSON has "}" followed by "{" inside it
    as many records as lines                       so each line holds exactly one
    the whole block is valid UTF-8                 the parser skips over fields without looking
Otherwise every line is parsed alone, and a bad one is set aside with its reason.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

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
from tokenmill.records import DocumentBatch, Int64Array, Rejection

if TYPE_CHECKING:
    from tokenmill.read.sources import Source

MAX_RECORDS = 100
PREVIEW_BYTES = 1 << 18
"""First records that are looked at for the names of their fields, and their bytes."""
_OBJECT_START = re.compile(rb'\{\s*"')


class JsonLines(ByteFormat):
    """One JSON object a line."""

    libraries = ("msgspec",)

    def delimiter(self, fields: Fields) -> bytes:
        return b"\n"

    def sniff(self, head: bytes, name: Path) -> bool:
        """Whether the first line is an object, or the name says so."""
        line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
        is_whole = newline or len(head) < SNIFF_BYTES
        is_object = _is_object(line) if is_whole else _OBJECT_START.match(line)
        return bool(is_object) or name.suffix.lower() in (".json", *LINE_SUFFIXES)

    def check_fields(self, source: Source, fields: Fields) -> set[str]:
        """Names and dotted paths of all fields in the first records; empty if none can be read."""
        with opened(source) as stream:
            _, first = next(iter_blocks(stream, 0, None, b"\n", PREVIEW_BYTES), (0, b""))
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
    """The names and dotted paths of all fields of a record."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield prefix + key
            yield from paths(member, f"{prefix}{key}.")


class JsonlParser:
    """Parses blocks of lines; made once for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._text_path = fields.text.split(".")
        self._extra = {name: name.split(".") for name in fields.extra}
        record, text_of = _record_type(self._text_path, self._extra)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(record)
        self._text_of = text_of

    def parse(self, block: bytes, offset: int, source: int) -> DocumentBatch:
        """The documents of `block`, which starts at byte `offset` of the source."""
        bom_bytes = len(BOM) if offset == 0 and block.startswith(BOM) else 0
        body = block[bom_bytes:] if bom_bytes else block
        require_memory(len(body))
        starts, stops = line_bounds(body)
        records = decode_block(self._decoder, body, starts, stops)
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
        """The documents of `body`, whose record i is the JSON in bytes [starts[i], stops[i])."""
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
        """The record of a line, or why it is none: (reason, detail)."""
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
        """Why a field besides the text cannot be used: (reason, detail)."""
        for name in self._extra:
            try:
                value = self._extra_value(record, name)
                if name == self._fields.no_loss:
                    char_spans(value)
            except msgspec.MsgspecError as error:  # it is JSON, so only a number can be at fault
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
        if raw is None or isinstance(raw, str):  # a string is the text, which is decoded
            return walk(raw, path[depth:])
        return walk(msgspec.json.decode(raw), path[depth:])

    def _add_extra(self, batch: DocumentBatch, records: Sequence[Any]) -> bool:
        """Fill ids, columns and spans; False where a value calls for the line-by-line path."""
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
    """Parses blocks of lines for what renders them; made once for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._renderer = RecordRenderer(fields)
        self._decoder = msgspec.json.Decoder(_object_type(fields.wanted))

    def parse(self, block: Block, source: Source) -> DocumentBatch:
        """The documents of a block."""
        bom_bytes = len(BOM) if block.start == 0 and block.content.startswith(BOM) else 0
        body, offset, index = block.content[bom_bytes:], block.start + bom_bytes, source.index
        require_memory(len(body))
        starts, stops = line_bounds(body)
        records = decode_block(self._decoder, body, starts, stops)
        if records is None:
            batch = self.parse_each(body, offset, index, starts, stops)
        else:
            batch = self._render(body, offset, index, starts, stops, records)
        batch.bom_bytes = bom_bytes
        return batch

    def parse_each(
        self, body: bytes, offset: int, source: int, starts: Int64Array, stops: Int64Array
    ) -> DocumentBatch:
        """The documents of `body`, whose record i is the JSON in bytes [starts[i], stops[i])."""
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
        """The record of a line, or why it is none: (reason, detail)."""
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
    """What takes any value under the first keys of the wanted paths; everything if None."""
    if wanted is None:
        return dict[str, Any]
    keys = {name.partition(".")[0]: Any for name in wanted}
    return TypedDict("Record", keys, total=False)  # type: ignore[operator]


def _attribute(path: Sequence[str]) -> str:
    """A Python name for a JSON path; msgspec maps it back to the key."""
    return "f_" + "_".join(key.encode().hex() for key in path)


def _record_type(text_path: list[str], extra: dict[str, list[str]]) -> tuple[type, Any]:
    """A msgspec struct that takes the text strictly and other fields raw, and its text getter."""

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
