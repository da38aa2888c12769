"""Reasons why JSON is not a usable record, independent of the parser."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from tokenmill.read.values import walk

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def reason_of(line: bytes, error: Exception, text_path: list[str]) -> tuple[str, str]:
    """Return (reason, detail) for a record without a text; `error` comes from msgspec."""
    value = json_object(line, error)
    if isinstance(value, tuple):
        return value
    name = ".".join(text_path)
    parent = walk(value, text_path[:-1])
    if not isinstance(parent, dict) or text_path[-1] not in parent:
        return "missing-field", f"the record has no field {name!r}"
    text = parent[text_path[-1]]
    if text is None:
        return "null-text", f"{name!r} is null"
    return "text-not-a-string", str(error)


def json_object(line: bytes, error: Exception) -> dict[str, Any] | tuple[str, str]:
    """Parse the object of a line, or return why that fails as (reason, detail)."""
    try:
        # Values do not matter here, and Python refuses to parse an int of over 4,300 digits.
        value = json.loads(line, parse_int=lambda digits: 0)
        msgspec_accepts = _accepts(line)
    except (ValueError, RecursionError):
        return "invalid-json", str(error)
    if not msgspec_accepts:
        if _LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            return "lone-surrogate", "an escape encodes half of a surrogate pair"
        return "invalid-json", str(error)
    if not isinstance(value, dict):
        return "not-an-object", f"the record must be a JSON object, got {type(value).__name__}"
    return value


def _accepts(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True
