"""The fields that the first records of sources have."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tokenmill.errors import DataError, UserError
from tokenmill.read.blocks import iter_blocks
from tokenmill.read.compression import decompressed
from tokenmill.read.documents import COLUMNAR_FORMATS, source_errors
from tokenmill.read.fields import Fields
from tokenmill.read.formats.jsonl import BOM, require_memory
from tokenmill.read.formats.tables.isolated import check_schema
from tokenmill.read.sources import Source
from tokenmill.suggestions import nearest

MAX_RECORDS = 100
MAX_PREVIEWED_SOURCES = 64
MAX_DISTANT_SOURCES = 4
"""Of those that are no tables: each takes a megabyte over the network."""
PREVIEW_BYTES = 1 << 18
NUM_THREADS = 4


def check_fields(sources: Sequence[Source], fields: Fields) -> None:
    """Raise a UserError where the text is in none of a source's first records, or another field
    in none of any source's: ids and kept fields may be rare, the text may not.
    """
    seen: set[str] = set()
    records: Source | None = None
    previewed = [source for source in sources[:MAX_PREVIEWED_SOURCES] if source.num_bytes]
    _check_schemas([s for s in previewed if s.format in COLUMNAR_FORMATS], fields)
    lines = [source for source in previewed if source.format == "jsonl"]
    distant = [source.index for source in lines if source.streamed]
    for source in lines:
        if source.index in distant[MAX_DISTANT_SOURCES:]:
            continue
        try:
            with source_errors(source):
                present = fields_of_first_records(source, PREVIEW_BYTES)
        except DataError:
            continue  # the unit that reads the file reports the damage
        if present:
            _require_field(fields.text, present, source)
            records, seen = source, seen | present
    if records:
        for name in fields.extra:
            _require_field(name, seen, records)


def _check_schemas(sources: Sequence[Source], fields: Fields) -> None:
    """Check several distant files at a time: each takes a request, and a process to parse it."""

    def check(source: Source) -> None:
        with contextlib.suppress(DataError):  # the unit that reads the file reports the damage
            check_schema(source, fields)

    for source in sources:
        if not source.streamed:
            check(source)
    distant = [source for source in sources if source.streamed]
    with ThreadPoolExecutor(NUM_THREADS, "preview") as threads:
        list(threads.map(check, distant))


def _require_field(name: str, present: set[str], source: Source) -> None:
    if name in present:
        return
    close = nearest(name, present)
    hint = f"did you mean {close!r}? " if close else ""
    raise UserError(
        f"there is no field {name!r} in the first records",
        where=source.where,
        why=f"the fields are {', '.join(sorted(present)[:20])}",
        hint=hint + "name the right one with --text-field, --id-field, --keep or --no-loss",
    )


def fields_of_first_records(source: Source, num_bytes: int) -> set[str]:
    """Names and dotted paths of all fields in the first records; empty where none can be read."""
    with source.open() as raw, decompressed(raw, source.where, source.compression) as stream:
        first = next(iter_blocks(stream, 0, None, b"\n", num_bytes), (0, b""))
    found: set[str] = set()
    require_memory(len(first[1]))
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
