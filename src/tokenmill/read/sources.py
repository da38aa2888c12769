"""Resolving inputs to an ordered list of sources, and early checks of their first records."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from tokenmill.core.errors import DataError, InputChangedError, UserError
from tokenmill.read.compression import SNIFF_BYTES, compression_of, decompressed
from tokenmill.read.fields import Fields, require_field
from tokenmill.read.foreign import foreign_kind, plain_name, refuse_foreign
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.per_input import ANY_INPUT, PerInput
from tokenmill.read.source import AUTO, LOCAL, PLACES, Access, Source, place_of


def find_sources(
    inputs: Sequence[str], chosen: PerInput = ANY_INPUT, access: Access | None = None
) -> list[Source]:
    """Return all files that `inputs` name, ready to be read.

    Remote files are downloaded, unless `access` says otherwise.

    Raises:
        TokenmillError: see `list_sources` and `fetch_sources`.
    """
    access = access or Access()
    return fetch_sources(list_sources(inputs, chosen, access), access)


def list_sources(inputs: Sequence[str], chosen: PerInput, access: Access) -> list[Source]:
    """List all files that `inputs` (files, folders, globs, remote names) name, without downloads.

    The order is that of the arguments; folders are sorted.

    Raises:
        UserError: nothing matches; a file is named twice, is not a regular file, or has an
            unsupported format; plain text and records are mixed, although no format was chosen
            for the text; or a pattern of `chosen` matches nothing.
    """
    by_input = list_by_input(inputs, chosen, access)
    return [source for sources in by_input for source in sources]


def list_by_input(inputs: Sequence[str], chosen: PerInput, access: Access) -> list[list[Source]]:
    """Like `list_sources`, but with separate files for each input."""
    names: dict[str, list[str]] = {LOCAL: []}
    for name in inputs:
        names.setdefault(place_of(name), []).append(name)
    found: dict[str, list[Source]] = {}
    for place, of_place in names.items():
        if place != LOCAL:
            _in_order(names[LOCAL], found)  # refuse early, before any request
        for name, sources in PLACES[place].list(of_place, access).items():
            found[name] = [_as_listed(chosen.applied(source)) for source in sources]
    chosen.require_matches(list(itertools.chain.from_iterable(found.values())))
    sources = _in_order(inputs, found)
    if not sources:
        raise UserError("no input files", why=f"found nothing in {', '.join(map(str, inputs))}")
    numbered = iter(sources)
    return [list(itertools.islice(numbered, len(found[name]))) for name in inputs]


def fetch_sources(sources: Sequence[Source], access: Access) -> list[Source]:
    """Return the sources ready to be read, after downloads if needed.

    Raises:
        UserError: a file has an unsupported format, or cannot be streamed.
        TokenmillError: a file cannot be downloaded.
    """
    if not any(source.is_distant for source in sources):
        return list(sources)
    if access.mode == "stream":
        _refuse_other_streams(sources)
    looked_at: dict[tuple[str, str], Source] = {}

    def ready(before: Source, source: Source) -> Source:
        """Return a source with its format and compression, detected if necessary."""
        if not before.is_distant or (source.is_distant and _reads_ranges(source)):
            return source
        if not source.is_distant or not source.num_bytes:
            return _detected(source)
        # Detection takes a request, so it is done once for each suffix.
        suffixes = plain_name(source.name).suffix + Path(source.name).suffix
        suffixes = re.sub(r"\d+", "0", suffixes)  # such as ".00017" of a part
        kind = suffixes, source.chosen_format
        if kind not in looked_at:
            looked_at[kind] = _detected(source)
        first = looked_at[kind]
        return replace(source, format=first.format, compression=first.compression)

    placed = place_sources(sources, access)
    fetched = [ready(before, source) for before, source in zip(sources, placed, strict=True)]
    _refuse_formats(fetched)
    return fetched


def place_sources(sources: Sequence[Source], access: Access) -> list[Source]:
    """Return the sources after their places have fetched the remote ones.

    Raises:
        TokenmillError: a file cannot be downloaded.
    """
    placed = {source.index: source for source in sources}
    for place, distant in _by_place(source for source in sources if source.is_distant).items():
        placed |= {source.index: source for source in PLACES[place].fetch(distant, access)}
    return [placed[source.index] for source in sources]


def commits_of(sources: Sequence[Source]) -> dict[str, str]:
    """Return the commits of remote names when they were listed, for the identity of a build."""
    commits: dict[str, str] = {}
    for place, of_place in _by_place(sources).items():
        commits |= PLACES[place].commits(of_place)
    return commits


def pinned_names(
    inputs: Sequence[str], old: Mapping[str, str], new: Mapping[str, str]
) -> list[str]:
    """Return pinned names for the inputs with commits that have changed.

    `old` and `new` are the results of `commits_of` then and now.
    """
    moved = {key: commit for key, commit in old.items() if commit != new.get(key)}
    pinned = (PLACES[place_of(name)].pinned(name, moved) for name in inputs)
    return [name for name in pinned if name]


def find_source(
    index: int, name: str, origin: str, num_bytes: int, version: str, path: Path
) -> Source:
    """Return the source that a record names; `origin` is "" for a local file, which was at `path`.

    Raises:
        UserError: its place is not installed, or the file has changed.
        DataError: the record does not name a valid file.
    """
    place = place_of(origin)
    if origin and place == LOCAL:
        why = "no installed package can read it"
        raise UserError("a source is in an unsupported location", where=origin, why=why)
    source = Source(
        index=index,
        name=name,
        place=place,
        location=origin or str(path),
        version=version,
        num_bytes=num_bytes,
    )
    return PLACES[place].find_again(source, path)


def _by_place(sources: Iterable[Source]) -> dict[str, list[Source]]:
    by_place: dict[str, list[Source]] = {}
    for source in sources:
        by_place.setdefault(source.place, []).append(source)
    return by_place


def _in_order(inputs: Sequence[str], found: Mapping[str, Sequence[Source]]) -> list[Source]:
    """Return the numbered sources of all inputs; refuse repeated sources and mixed formats."""
    all_found = (source for name in inputs for source in found[name])
    sources = [replace(source, index=index) for index, source in enumerate(all_found)]
    _refuse_repeated(sources)
    _refuse_formats([source for source in sources if not source.is_distant])
    return sources


def _as_listed(source: Source) -> Source:
    """Return a source with its format, as far as it is known without a request."""
    if not source.is_distant:
        return _detected(source)
    for known in FORMATS.built_in:
        if source.name.endswith(FORMATS[known].range_suffixes):
            return replace(source, format=known)
    return replace(source, format=source.chosen_format)


def _detected(source: Source) -> Source:
    with source.open() as file:
        name = Path(source.location).name
        found, compression = detect(file, source.where, name, source.chosen_format)
    return replace(source, format=found, compression=compression)


def _reads_ranges(source: Source) -> bool:
    return source.format != AUTO and bool(FORMATS[source.format].range_suffixes)


def _refuse_other_streams(sources: Sequence[Source]) -> None:
    for source in sources:
        if source.is_distant and not source.in_parts and not _reads_ranges(source):
            raise UserError(
                "an input cannot be streamed",
                where=source.where,
                why="only Parquet files can be streamed; its name does not end in .parquet",
                hint="omit --streaming to download the files, or add --format parquet if "
                "they are Parquet",
            )


def _refuse_repeated(sources: Sequence[Source]) -> None:
    for of in (lambda source: source.where, lambda source: source.name):
        repeated = [name for name, count in Counter(map(of, sources)).items() if count > 1]
        if repeated:
            why = "its documents would be written twice"
            hint = "name each file once; folders and globs must not overlap"
            raise UserError("an input is named twice", where=repeated[0], why=why, hint=hint)


def _refuse_formats(sources: Sequence[Source]) -> None:
    """Raise a UserError for all files that cannot be read, or if text and records are mixed."""
    refuse_foreign((source.origin or source.where, source.format) for source in sources)
    families: dict[str, str] = {}
    for source in sources:
        holds_records = FORMATS[source.format].holds_records
        if source.num_bytes and (holds_records or source.chosen_format == AUTO):
            families.setdefault("records" if holds_records else "text", source.name)
    if len(families) > 1:
        glob = f"*{Path(families['text']).suffix}" if Path(families["text"]).suffix else "GLOB"
        raise UserError(
            "the inputs mix plain text and records",
            where=f"{families['text']} is plain text, {families['records']} contains records",
            why="otherwise a stray README or log would become training data",
            hint=f"to read both, add --format '{glob}=text', or build each kind on its own and "
            "combine the datasets with tokenmill.mix; else name only the files to read",
        )


def format_names() -> Iterator[str]:
    """Yield the valid values of --format; packages are only looked at for the last ones."""
    yield from (AUTO, *FORMATS.built_in)
    yield from FORMATS.registered


def detect(file: BinaryIO, where: str, name: str, file_format: str) -> tuple[str, str]:
    """Return the format and the compression; a `file_format` other than "auto" overrides detection.

    Tables are detected even then, except with "text". For a file that cannot be read, the format is
    its kind in `foreign.ADVICE`.
    """
    head = file.read(SNIFF_BYTES)
    compression = compression_of(head)
    if file_format != AUTO and not FORMATS[file_format].holds_records:
        return file_format, compression
    for table in FORMATS.built_in:
        if not FORMATS[table].compressible and FORMATS[table].sniff(head, Path(name)):
            return table, "none"
    if file_format != AUTO:
        return file_format, compression
    if compression != "none":
        file.seek(0)
        try:
            with decompressed(file, where, compression) as stream:
                head = stream.read(SNIFF_BYTES)
        except DataError:
            head = b""  # the unit that reads the file reports the damage
        if compression_of(head) != "none":
            return "compressed more than once", compression
    return _detect_plain(plain_name(name), head, compression != "none"), compression


def _detect_plain(name: Path, head: bytes, is_compressed: bool) -> str:
    kind = foreign_kind(head, name)
    own = (each for each in FORMATS.built_in if FORMATS[each].holds_records)
    for each in () if kind else own:
        if FORMATS[each].compressible and FORMATS[each].sniff(head, name):
            return each
    for other in FORMATS.registered:
        if (FORMATS[other].compressible or not is_compressed) and FORMATS[other].sniff(head, name):
            return other
    return kind or "text"


MAX_PREVIEWED_SOURCES = 64
MAX_DISTANT_SOURCES = 4
"""Most checked remote sources that cannot be read in parts: each needs a 1 MB download."""
SMALL_FETCH_BYTES = 8 << 20
"""Inputs up to this size are downloaded without checking their first file before."""
NUM_THREADS = 4


def check_fields(sources: Sequence[Source], fields: Fields) -> None:
    """Raise a UserError if a requested field is missing from the first records.

    The text must appear in every source. Ids and kept fields can be rare, so they must only appear
    in any of the sources. Sources of plain text are refused if texts are built from fields, or if
    no source has the other fields.
    """
    plain = [source for source in sources if not FORMATS[source.format].holds_records]
    needs_any = not fields.optional.issuperset(fields.extra) and len(plain) == len(sources)
    if plain and (fields.rendering or needs_any):
        why = "it is plain text, which has no fields"
        raise UserError("an input contains no records", where=plain[0].where, why=why)
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


def check_before_fetch(sources: Sequence[Source], fields: Fields, access: Access) -> None:
    """Raise a UserError if the first file of a folder has no text field, before a long download.

    This only needs a part of the file.
    """
    distant = [source for source in sources if source.is_distant and not source.in_parts]
    if access.mode != "download" or sum(s.num_bytes for s in distant) <= SMALL_FETCH_BYTES:
        return
    by_folder = {source.name.rpartition("/")[0]: source for source in reversed(distant)}
    firsts = list(by_folder.values())[:MAX_PREVIEWED_SOURCES]
    with contextlib.suppress(InputChangedError):  # the download notices it too and lists again
        firsts = fetch_sources(firsts, replace(access, mode="sample"))
        check_fields(firsts, Fields(fields.text, rendering=fields.rendering))


def _fields_of(sources: Sequence[Source], fields: Fields) -> list[set[str]]:
    """Return the fields of each source; several remote sources are checked concurrently."""
    from tokenmill.read.documents import source_errors  # with numpy, which takes 100 ms

    distant = [source for source in sources if source.is_distant]
    slow = [source.index for source in distant if not FORMATS[source.format].range_suffixes]
    left_out = {*slow[MAX_DISTANT_SOURCES:]}

    def look(source: Source) -> set[str]:
        # The unit that reads the file reports the damage.
        with contextlib.suppress(DataError), source_errors(source):
            return FORMATS[source.format].check_fields(source, fields.of(source))
        return set()

    found = {source.index: look(source) for source in sources if not source.is_distant}
    with ThreadPoolExecutor(NUM_THREADS, "preview") as threads:
        asked = [source for source in distant if source.index not in left_out]
        found |= zip((s.index for s in asked), threads.map(look, asked), strict=True)
    return [found.get(source.index, set()) for source in sources]
