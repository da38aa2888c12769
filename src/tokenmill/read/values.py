"""Values of records: found by their path, and as columns hold them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


def column_value(value: object) -> str | None:
    """A kept value as a column holds it: strings as they are, null as null, the rest as JSON."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=str).decode()


def walk(value: object, path: Iterable[str]) -> object:
    """The value at a path of keys below `value`, or None where the path ends early."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
