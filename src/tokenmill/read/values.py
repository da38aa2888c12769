"""Values of records: lookup by path, and conversion for columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tokenmill.core.records import CharSpans


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
        ValueError: the value is not such a list.
    """
    if value is None:
        return []
    spans = [_span(item) for item in value] if isinstance(value, (list, tuple)) else None
    if spans is None or any(span is None for span in spans):
        raise ValueError("not a list of [start, stop) character ranges")
    return [span for span in spans if span is not None]


def _span(item: object) -> tuple[int, int] | None:
    if isinstance(item, dict):
        item = (item["start"], item["stop"]) if item.keys() == {"start", "stop"} else None
    if not isinstance(item, (list, tuple)) or len(item) != 2:
        return None
    start, stop = item
    valid = type(start) is int and type(stop) is int and 0 <= start <= stop  # refuses bools
    return (start, stop) if valid else None
