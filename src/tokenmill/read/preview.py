"""The fields that the first records of a JSON Lines file have."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tokenmill.read.blocks import iter_blocks
from tokenmill.read.compression import open_decompressed
from tokenmill.read.jsonl import BOM
from tokenmill.read.sources import Source

MAX_RECORDS = 100


def fields_of_first_records(source: Source, num_bytes: int) -> set[str]:
    """Names and dotted paths of all fields in the first records; empty where none can be read."""
    with open_decompressed(source.path, source.compression) as stream:
        first = next(iter_blocks(stream, 0, None, b"\n", num_bytes), (0, b""))
    found: set[str] = set()
    for line in first[1].removeprefix(BOM).splitlines()[:MAX_RECORDS]:
        try:
            found.update(_paths(msgspec.json.decode(line), ""))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return found


def _paths(value: object, prefix: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            yield prefix + key
            yield from _paths(member, f"{prefix}{key}.")
