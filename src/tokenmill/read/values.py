"""Values of records: lookup by path, conversion for columns, and why a record cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tokenmill.core.records import CharSpans, Rejection


class UnfitRecordError(ValueError):
    """A record cannot be used and is rejected, with a reason (a short name) and a detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    def rejection(
        self, source: int, position: int, record: bytes, num_bytes: int | None = None
    ) -> Rejection:
        """Return the rejection of a record at a position, which counts `num_bytes`."""
        from tokenmill.core.records import Rejection  # loads numpy, which child processes lack

        size = len(record) if num_bytes is None else num_bytes
        return Rejection(source, position, size, self.reason, self.detail, record)


def not_utf8(error: UnicodeDecodeError, part: str) -> UnfitRecordError:
    """Return the reason for bytes that are not UTF-8, in a part of a record such as "the text"."""
    return UnfitRecordError("invalid-utf8", f"{error.reason} at byte {error.start} of {part}")


def missing_field(name: str) -> UnfitRecordError:
    """Return the reason for a record without a field."""
    return UnfitRecordError("missing-field", f"the record has no field {name!r}")


def column_value(value: object) -> str | None:
    """Convert a kept value for a column: strings and null stay, other values become JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()


def walk(value: object, path: Iterable[str]) -> object:
    """Return the value at a path of keys below `value`, or None if the path does not exist."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def char_spans(value: object) -> CharSpans:
    """Check and convert a list of [start, stop) pairs.

    Raises:
        UnfitRecordError: the value is not such a list.
    """
    if value is None:
        return []
    spans = [_span(item) for item in value] if isinstance(value, (list, tuple)) else None
    if spans is None or any(span is None for span in spans):
        raise UnfitRecordError("invalid-spans", "not a list of [start, stop) character ranges")
    return [span for span in spans if span is not None]


def _span(item: object) -> tuple[int, int] | None:
    if isinstance(item, dict):
        item = (item["start"], item["stop"]) if item.keys() == {"start", "stop"} else None
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        return None
    start, stop = item
    valid = type(start) is int and type(stop) is int and 0 <= start <= stop  # refuses bools
    return (start, stop) if valid else None
