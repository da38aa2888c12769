"""Early checks that the first records of sources have the requested fields."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tokenmill.core.errors import DataError, InputChangedError, UserError
from tokenmill.read.documents import source_errors
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import fetch_sources

MAX_PREVIEWED_SOURCES = 64
MAX_DISTANT_SOURCES = 4
"""Most checked remote sources that cannot be read in parts: each needs a 1 MB download."""
SMALL_FETCH_BYTES = 8 << 20
"""Inputs up to this size are downloaded without checking their first file before."""
NUM_THREADS = 4


def check_fields(sources: Sequence[Source], fields: Fields) -> None:
    """Raise a UserError if a requested field is missing from the first records.

    The text must appear in every source. Ids and kept fields can be rare, so they must only appear
    in any of the sources. If texts are built from fields, sources of plain text are refused.
    """
    if fields.rendering:
        for source in sources:
            if not FORMATS[source.format].holds_records:
                why = "it is plain text, which has no fields"
                raise UserError("an input contains no records", where=source.where, why=why)
    previewed = [source for source in sources[:MAX_PREVIEWED_SOURCES] if source.num_bytes]
    seen: set[str] = set()
    where = ""
    for source, found in zip(previewed, _fields_of(previewed, fields), strict=True):
        if found:
            seen, where = seen | found, source.where
    if seen:
        for name in fields.extra:
            if name not in fields.optional:
                require_field(name, seen, where)


def check_before_fetch(
    sources: Sequence[Source], fields: Fields, file_format: str, access: Access
) -> None:
    """Raise a UserError if the first file of a folder has no text field, before a long download.

    This only needs a part of the file.
    """
    distant = [source for source in sources if source.is_distant and not source.in_parts]
    if access.mode != "download" or sum(s.num_bytes for s in distant) <= SMALL_FETCH_BYTES:
        return
    by_folder = {source.name.rpartition("/")[0]: source for source in reversed(distant)}
    firsts = list(by_folder.values())[:MAX_PREVIEWED_SOURCES]
    with contextlib.suppress(InputChangedError):  # the download notices it too and lists again
        firsts = fetch_sources(firsts, file_format, replace(access, mode="sample"))
        check_fields(firsts, Fields(fields.text, rendering=fields.rendering))


def _fields_of(sources: Sequence[Source], fields: Fields) -> list[set[str]]:
    """Return the fields of each source; several remote sources are checked concurrently."""
    distant = [source for source in sources if source.is_distant]
    slow = [source.index for source in distant if not FORMATS[source.format].range_suffixes]
    left_out = {*slow[MAX_DISTANT_SOURCES:]}

    def look(source: Source) -> set[str]:
        # The unit that reads the file reports the damage.
        with contextlib.suppress(DataError), source_errors(source):
            return FORMATS[source.format].check_fields(source, fields)
        return set()

    found = {source.index: look(source) for source in sources if not source.is_distant}
    with ThreadPoolExecutor(NUM_THREADS, "preview") as threads:
        asked = [source for source in distant if source.index not in left_out]
        found |= zip((s.index for s in asked), threads.map(look, asked), strict=True)
    return [found.get(source.index, set()) for source in sources]
