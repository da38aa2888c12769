"""Whether sources have the fields that are asked for, as far as their beginnings tell."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tokenmill.errors import DataError, InputChangedError, UserError
from tokenmill.read.documents import source_errors
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.places.place import Access
from tokenmill.read.sources import Source, fetch_sources

MAX_PREVIEWED_SOURCES = 64
MAX_DISTANT_SOURCES = 4
"""Of those that cannot be read in parts: each takes a megabyte over the network."""
SMALL_FETCH_BYTES = 8 << 20
"""What is fetched at once, without a look at its first file."""
NUM_THREADS = 4


def check_fields(sources: Sequence[Source], fields: Fields) -> None:
    """Raise a UserError where the text is in none of a source's first records, or another field
    in none of any source's: ids and kept fields may be rare, the text may not. Also where texts are
    made of fields and a source has none.
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
    """Raise a UserError if a text is not in the first file of a folder that is about to be fetched:
    that is seen from a part of the file, before a long download.
    """
    distant = [source for source in sources if source.is_distant and not source.in_parts]
    if access.mode != "download" or sum(s.num_bytes for s in distant) <= SMALL_FETCH_BYTES:
        return
    by_folder = {source.name.rpartition("/")[0]: source for source in reversed(distant)}
    firsts = list(by_folder.values())[:MAX_PREVIEWED_SOURCES]
    with contextlib.suppress(InputChangedError):  # the download finds it, too, and lists anew
        firsts = fetch_sources(firsts, file_format, replace(access, mode="sample"))
        check_fields(firsts, Fields(fields.text, rendering=fields.rendering))


def _fields_of(sources: Sequence[Source], fields: Fields) -> list[set[str]]:
    """The fields of each source. Several distant ones are asked at a time: each takes a request."""
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
