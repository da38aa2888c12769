"""Resolving inputs to an ordered list of sources with versions."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from tokenmill.core.errors import InputChangedError, UserError
from tokenmill.read.detection import AUTO, detect
from tokenmill.read.foreign import plain_name, refuse_foreign
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.places.place import LOCAL, PLACES, Access, place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An input file, as found when the build was planned."""

    index: int = 0
    """The number of the source among all sources."""
    name: str
    """Path relative to the inputs' common folder, with slashes; the same on every machine."""
    place: str
    """Registered name of the place."""
    location: str
    """Address in the place: a path as given, or hf://datasets/OWNER/NAME@COMMIT/PATH."""
    version: str | int
    """A value that changes with the file, in addition to its size: the mtime in ns of a local file,
    a digest or similar for any other.
    """
    num_bytes: int
    format: str = AUTO
    """A registered format; "auto" before detection, and a kind in `foreign.ADVICE` for a file that
    cannot be read.
    """
    compression: str = "none"
    """none, gzip, zstd, bzip2 or xz."""
    path: Path | None = None
    """The local file; None if the source is streamed."""
    mtime_ns: int = 0
    """The mtime of the local file."""
    in_parts: bool = False
    """Whether a streamed source is cut and grouped like a local file."""

    @property
    def is_distant(self) -> bool:
        """Whether the source has no local file and is streamed."""
        return self.path is None

    @property
    def where(self) -> str:
        """The address of the file for messages and records."""
        return self.location if self.path is None else str(self.path)

    @property
    def origin(self) -> str:
        """The location of a remote file, downloaded or not; "" for a local file."""
        return "" if self.place == LOCAL else self.location

    def kept_at(self, path: Path) -> Source:
        """Return the source with a local file."""
        from tokenmill.read.places.local import regular_file

        return replace(self, path=path, mtime_ns=regular_file(path).st_mtime_ns)

    def open(self, check: Callable[[], None] = lambda: None) -> BinaryIO:
        """Open the file; `check` is called repeatedly while waiting for a server."""
        if self.path is not None:
            return open(self.path, "rb")
        return PLACES[self.place].open(self, check)

    def require_unchanged(self) -> None:
        """Raise an InputChangedError if the local file has changed.

        Remote files are compared with their version while they are read.
        """
        if self.path is None:
            return
        status = self.path.stat()
        found = (status.st_size, status.st_mtime_ns)
        if found != (self.num_bytes, self.mtime_ns):
            raise InputChangedError(
                "an input changed during the build",
                where=str(self.path),
                why=f"size and mtime were {self.num_bytes}, {self.mtime_ns}; they are now {found}",
                hint="once it no longer changes, build again with --overwrite",
            )


Sources = Sequence[Source] | Mapping[int, Source]
"""Sources by index: all of them, or only the needed ones."""


def find_sources(
    inputs: Sequence[str], file_format: str = AUTO, access: Access | None = None
) -> list[Source]:
    """Return all files that `inputs` name, ready to be read.

    Remote files are downloaded, unless `access` says otherwise.

    Raises:
        TokenmillError: see `list_sources` and `fetch_sources`.
    """
    access = access or Access()
    return fetch_sources(list_sources(inputs, file_format, access), file_format, access)


def list_sources(inputs: Sequence[str], file_format: str, access: Access) -> list[Source]:
    """List all files that `inputs` (files, folders, globs, remote names) name, without downloads.

    The order is that of the arguments; folders are sorted.

    Raises:
        UserError: nothing matches; a file is named twice, is not a regular file, or has an
            unsupported format; or plain text and records are mixed without `file_format`.
    """
    by_input = list_by_input(inputs, file_format, access)
    return [source for sources in by_input for source in sources]


def list_by_input(inputs: Sequence[str], file_format: str, access: Access) -> list[list[Source]]:
    """Like `list_sources`, but with separate files for each input."""
    names: dict[str, list[str]] = {LOCAL: []}
    for name in inputs:
        names.setdefault(place_of(name), []).append(name)
    found: dict[str, list[Source]] = {}
    for place, of_place in names.items():
        if place != LOCAL:
            _in_order(names[LOCAL], found)  # refuse early, before any request
        for name, sources in PLACES[place].list(of_place, access).items():
            found[name] = [_as_listed(source, file_format) for source in sources]
    sources = _in_order(inputs, found)
    if not sources:
        raise UserError("no input files", why=f"found nothing in {', '.join(map(str, inputs))}")
    numbered = iter(sources)
    return [list(itertools.islice(numbered, len(found[name]))) for name in inputs]


def fetch_sources(sources: Sequence[Source], file_format: str, access: Access) -> list[Source]:
    """Return the sources ready to be read, after downloads if needed.

    Raises:
        UserError: a file has an unsupported format, or cannot be streamed.
        TokenmillError: a file cannot be downloaded.
    """
    if not any(source.is_distant for source in sources):
        return list(sources)
    if access.mode == "stream":
        _refuse_other_streams(sources)
    looked_at: dict[str, Source] = {}

    def ready(before: Source, source: Source) -> Source:
        """Return a source with its format and compression, detected if necessary."""
        if not before.is_distant or (source.is_distant and _reads_ranges(source)):
            return source
        if not source.is_distant:
            return _detected(source, file_format)
        if not source.num_bytes:
            return _detected(source, file_format)
        # Detection takes a request, so it is done once for each suffix.
        suffixes = _unnumbered(plain_name(source.name).suffix + Path(source.name).suffix)
        if suffixes not in looked_at:
            looked_at[suffixes] = _detected(source, file_format)
        first = looked_at[suffixes]
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


def _as_listed(source: Source, file_format: str) -> Source:
    """Return a source with its format, as far as it is known without a request."""
    if not source.is_distant:
        return _detected(source, file_format)
    for known in FORMATS.built_in:
        if source.name.endswith(FORMATS[known].range_suffixes):
            return replace(source, format=known)
    return replace(source, format=file_format)


def _detected(source: Source, file_format: str) -> Source:
    with source.open() as file:
        name = Path(source.location).name
        found, compression = detect(file, source.where, name, file_format)
    return replace(source, format=found, compression=compression)


def _unnumbered(suffixes: str) -> str:
    """Return suffixes with part numbers such as ".00017" replaced, so that parts compare equal."""
    return re.sub(r"\d+", "0", suffixes)


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
        if source.num_bytes:
            holds_records = FORMATS[source.format].holds_records
            families.setdefault("records" if holds_records else "text", source.name)
    if len(families) > 1:
        raise UserError(
            "the inputs mix plain text and records",
            where=f"{families['text']} is plain text, {families['records']} contains records",
            why="otherwise a stray README or log would become training data",
            hint="name only the files that you want to read",
        )
