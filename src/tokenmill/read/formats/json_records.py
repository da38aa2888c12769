"""Parsing of JSON records, together or one by one, and the reasons why one cannot be used."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypedDict

import msgspec
import numpy as np

from tokenmill.core.records import DocumentBatch, Int64Array, Rejection
from tokenmill.read.blocks import BOM
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.formats.rendered import RecordRenderer, documents_of
from tokenmill.read.values import (
    UnfitRecordError,
    char_spans,
    column_value,
    missing_field,
    not_utf8,
    walk,
)

MAX_RECORDS = 100
PREVIEW_BYTES = 1 << 18
"""Most bytes read at the start of a file to find the names of fields."""
LONG_RECORD_BYTES = 1 << 23
"""Larger than any block of several records."""
DECODED_BYTES = 1 << 18
"""Up to this size, Python checks UTF-8: for a sample, importing Arrow would take longer."""
_WHITE_SPACE = b" \t\r\n"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def fields_of(records: Iterable[bytes], fields: Fields, where: str) -> set[str]:
    """Return names and dotted paths of fields in some first records; empty if unreadable.

    Raises:
        UserError: the records have fields, but not those of the texts.
    """
    found: set[str] = set()
    for _, record in zip(range(MAX_RECORDS), records, strict=False):
        require_memory(len(record))
        try:
            found.update(_paths(msgspec.json.decode(record), ""))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    if found:
        for name in fields.required_texts:
            require_field(name, found, where)
    return found


def _paths(value: object, prefix: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield prefix + key
            yield from _paths(member, f"{prefix}{key}.")


class JsonParser:
    """Parses JSON records for a set of fields."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._shape = _RenderedShape(fields) if fields.rendering else _TextShape(fields)

    def parse(self, block: bytes, offset: int, source: int) -> DocumentBatch:
        """Return the documents of lines, which start at byte `offset` of the source."""
        bom_bytes = len(BOM) if offset == 0 and block.startswith(BOM) else 0
        body, offset = block[bom_bytes:] if bom_bytes else block, offset + bom_bytes
        require_memory(len(body))
        starts, stops = line_bounds(body)
        may_be_long = len(body) > self._fields.max_record
        values = None if may_be_long else _decode_lines(self._shape.decoder, body, starts, stops)
        batch = None
        if values is not None:
            batch = self._shape.batch(
                source,
                values,
                starts + offset,
                stops - starts,
                lambda index: body[starts[index] : stops[index]],
                [],
            )
        if batch is None:
            bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))
            batch = self.parse_each(body, offset, source, bounds)
        batch.bom_bytes = bom_bytes
        return batch

    def parse_each(
        self, body: bytes, offset: int, source: int, bounds: Sequence[tuple[int, int]]
    ) -> DocumentBatch:
        """Return the documents of `body`; each record is in bytes [start, stop) of it."""
        records = [self._record(body[start:stop]) for start, stop in bounds]
        batch = documents_of(self._shape.batch, source, body, offset, bounds, records)
        blanks = (
            stop - start
            for record, (start, stop) in zip(records, bounds, strict=True)
            if record is None
        )
        batch.blank_bytes = sum(blanks)
        return batch

    def _record(self, record: bytes) -> Any:
        """Return a decoded record, the reason why it is rejected, or None if it is blank."""
        try:
            return self._parse(record) if record.strip(_WHITE_SPACE) else None
        except UnfitRecordError as error:
            return error

    def _parse(self, record: bytes) -> Any:
        if problem := self._fields.too_long(len(record)):
            raise problem
        try:
            record.decode()
            value = self._shape.decoder.decode(record)
        except UnicodeDecodeError as error:
            raise not_utf8(error, "the record") from error
        except RecursionError as error:
            raise UnfitRecordError("invalid-json", "nested too deeply") from error
        except msgspec.MsgspecError as error:
            raise self._shape.reason(record, error) from error
        self._shape.check(value)
        return value


class _RenderedShape:
    """Records that are rendered as texts."""

    def __init__(self, fields: Fields) -> None:
        self.batch = RecordRenderer(fields).render
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_object_type(fields.wanted))

    def check(self, record: Any) -> None:
        """Accept every record: its values are checked when it is rendered."""

    def reason(self, record: bytes, error: msgspec.MsgspecError) -> UnfitRecordError:
        found = _object_or_reason(record, error)
        if isinstance(found, UnfitRecordError):
            return found
        return UnfitRecordError("number-out-of-range", str(error))


def _object_type(wanted: Sequence[str] | None) -> Any:
    """Return a type with any value under the first keys of the paths; all keys if None."""
    if wanted is None:
        return dict[str, Any]
    keys = {name.partition(".")[0]: Any for name in wanted}
    return TypedDict("Record", keys, total=False)  # type: ignore[operator]


class _TextShape:
    """Records with a field that holds the text."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._text_path = fields.text.split(".")
        self._extra = {name: name.split(".") for name in fields.extra}
        kind, self._text_of = _record_type(self._text_path, self._extra)
        self.decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    def check(self, record: Any) -> None:
        """Check the fields other than the text."""
        for name in self._extra:
            try:
                value = self._extra_value(record, name)
            except msgspec.MsgspecError as error:  # the JSON is valid, so the cause is a number
                raise UnfitRecordError("number-out-of-range", f"{name!r}: {error}") from error
            if name == self._fields.no_loss:
                char_spans(value)

    def reason(self, record: bytes, error: msgspec.MsgspecError) -> UnfitRecordError:
        value = _object_or_reason(record, error)
        if isinstance(value, UnfitRecordError):
            return value
        name = ".".join(self._text_path)
        parent = walk(value, self._text_path[:-1])
        if not isinstance(parent, dict) or self._text_path[-1] not in parent:
            return missing_field(name)
        if parent[self._text_path[-1]] is None:
            return UnfitRecordError("null-text", f"{name!r} is null")
        return UnfitRecordError("text-not-a-string", str(error))

    def batch(
        self,
        source: int,
        values: Sequence[Any],
        positions: Int64Array,
        sizes: Int64Array,
        _as_found: object,
        rejected: list[Rejection],
    ) -> DocumentBatch | None:
        """Return the documents; None if a record that was not checked cannot be used."""
        fields = self._fields
        batch = DocumentBatch(
            source,
            texts=[self._text_of(record) for record in values],
            positions=positions,
            record_bytes=sizes,
            rejected=rejected,
        )
        try:
            found = {
                name: [self._extra_value(record, name) for record in values] for name in self._extra
            }
            if fields.no_loss:
                batch.no_loss = [char_spans(value) for value in found[fields.no_loss]]
        except (msgspec.MsgspecError, UnfitRecordError):
            return None
        if fields.id:
            batch.ids = [column_value(value) for value in found[fields.id]]
        batch.columns = {
            name: [column_value(value) for value in found[name]] for name in fields.keep
        }
        return batch

    def _extra_value(self, record: Any, name: str) -> object:
        path = self._extra[name]
        node, depth = record, 1
        while isinstance(getattr(node, _attribute(path[:depth]), None), msgspec.Struct):
            node, depth = getattr(node, _attribute(path[:depth])), depth + 1
        raw = getattr(node, _attribute(path[:depth]), None)
        if raw is None or isinstance(raw, str):  # the text is decoded already
            return walk(raw, path[depth:])
        return walk(msgspec.json.decode(raw), path[depth:])


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


def _object_or_reason(
    record: bytes, error: msgspec.MsgspecError
) -> dict[str, Any] | UnfitRecordError:
    """Return the object of a record that msgspec refused, or why there is none."""
    try:
        # Values do not matter here, and Python refuses to parse an int of over 4,300 digits.
        value = json.loads(record, parse_int=lambda digits: 0)
        is_accepted = _accepts(record)
    except (ValueError, RecursionError):
        return UnfitRecordError("invalid-json", str(error))
    if not is_accepted:
        if _LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            return UnfitRecordError("lone-surrogate", "an escape encodes half of a surrogate pair")
        return UnfitRecordError("invalid-json", str(error))
    if not isinstance(value, dict):
        detail = f"the record must be a JSON object, got {type(value).__name__}"
        return UnfitRecordError("not-an-object", detail)
    return value


def _accepts(record: bytes) -> bool:
    try:
        msgspec.json.decode(record, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def _decode_lines(
    decoder: msgspec.json.Decoder[Any], body: bytes, starts: Int64Array, stops: Int64Array
) -> list[Any] | None:
    """Parse the records of a block in one call.

    Returns None if the result could differ from parsing line by line.
    """
    data = np.frombuffer(body, np.uint8)
    if not len(starts) or not (data[starts] == ord("{")).all():
        return None
    ends = stops - 1
    ends = ends - (data[ends] == ord("\n"))
    ends = ends - (data[ends] == ord("\r"))
    if not (data[ends] == ord("}")).all() or not _is_utf8(body):
        return None
    try:
        records: list[Any] = decoder.decode_lines(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return records if len(records) == len(starts) else None


def require_memory(num_bytes: int) -> None:
    """Raise a MemoryError if there is no memory for another copy of a long record.

    msgspec 0.22 crashes if it gets no memory for a string. The test allocation is never touched, so
    it is free.
    """
    if num_bytes >= LONG_RECORD_BYTES:
        bytes(num_bytes)


def line_bounds(body: bytes) -> tuple[Int64Array, Int64Array]:
    """Return the starts and stops of all lines, including line ends."""
    ends = []
    find, end = body.find, 0
    while end := find(b"\n", end) + 1:
        ends.append(end)
    if body and not body.endswith(b"\n"):
        ends.append(len(body))
    stops = np.array(ends, dtype=np.int64)
    starts = np.zeros_like(stops)
    starts[1:] = stops[:-1]
    return starts, stops


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    if len(data) <= DECODED_BYTES:
        try:
            data.decode()
        except UnicodeDecodeError:
            return False
        return True
    import pyarrow as pa

    offsets = np.array([0, len(data)], np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        pa.Array.from_buffers(pa.large_string(), 1, buffers).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
