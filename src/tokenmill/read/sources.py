"""Inputs as the user names them to an ordered, fingerprinted list of sources."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from tokenmill.errors import InputChangedError, UserError
from tokenmill.read.detection import AUTO, detect
from tokenmill.read.foreign import refuse_foreign
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.places.hub.access import HubAccess
from tokenmill.read.places.hub.names import is_hub_name
from tokenmill.read.places.local import expand, real_paths, regular_file

if TYPE_CHECKING:
    from tokenmill.read.places.hub.file import HubFile


@dataclass(frozen=True, slots=True)
class Source:
    """One input file, as it was found when the build was planned."""

    index: int
    name: str
    """Path below the inputs' common folder, with forward slashes: the same on every machine."""
    path: Path
    num_bytes: int
    mtime_ns: int
    format: str
    """jsonl, text, parquet, arrow-file or arrow-stream; "auto" before anybody has looked, and a
    kind in `foreign.ADVICE` before such files are refused.
    """
    compression: str
    """none, gzip, zstd, bzip2 or xz."""
    origin: str = ""
    """Of a file of the Hub: hf://datasets/OWNER/NAME@COMMIT/PATH."""
    etag: str = ""
    """Of a file of the Hub: the digest by which it is known there."""
    streamed: bool = False
    """Read where it is: there is no file at `path`."""

    @property
    def where(self) -> str:
        """The file, for people and for records."""
        return self.origin if self.streamed else str(self.path)

    @property
    def version(self) -> str | int:
        """What changes when the file does, beside its size: the same on every machine if it can."""
        return self.etag or self.mtime_ns

    def open(self, check: Callable[[], None] = lambda: None) -> BinaryIO:
        """The bytes of the file; `check` is called now and then while a server is waited for."""
        if not self.streamed:
            return open(self.path, "rb")
        from tokenmill.read.places.hub.remote_file import open_remote

        return cast(BinaryIO, open_remote(self.origin, self.num_bytes, self.etag, check))

    def require_unchanged(self) -> None:
        """Raise an InputChangedError where the file is not as it was found.

        What is read from the Hub is compared with its digest at every request.
        """
        if self.streamed:
            return
        status = self.path.stat()
        found = (status.st_size, status.st_mtime_ns)
        if found != (self.num_bytes, self.mtime_ns):
            raise InputChangedError(
                "an input changed during the build",
                where=str(self.path),
                why=f"size and mtime were {self.num_bytes}, {self.mtime_ns}; now {found}",
                hint="build again with --overwrite once it no longer changes",
            )


def find_sources(
    inputs: Sequence[str], file_format: str = "auto", hub: HubAccess | None = None
) -> list[Source]:
    """All files that `inputs` name, ready to be read; those of the Hub are downloaded, unless `hub`
    says otherwise.

    Raises:
        TokenmillError: see `list_sources` and `fetch_sources`.
    """
    hub = hub or HubAccess()
    return fetch_sources(list_sources(inputs, file_format, hub), file_format, hub)


def list_sources(inputs: Sequence[str], file_format: str, hub: HubAccess) -> list[Source]:
    """All files that `inputs` (files, folders, globs, names on the Hub) name, in argument order,
    folders sorted. Of the Hub's files nothing is fetched yet.

    Raises:
        UserError: nothing matches, a file is named twice, is not a regular file, is of a kind
            that cannot be read, or files of different kinds are mixed without `file_format`.
    """
    paths = {name: list(expand(name)) for name in inputs if not is_hub_name(name)}
    found = _local_sources(paths, file_format)
    if names := [name for name in inputs if is_hub_name(name)]:
        _in_order(list(paths), found)  # what can be refused at once is not asked for
        from tokenmill.read.places.hub.inputs import find_files

        for name, files in find_files(names, hub).items():
            found[name] = [hub_source(0, file, file_format) for file in files]
    sources = _in_order(inputs, found)
    if not sources:
        raise UserError("no input files", why=f"found nothing in {', '.join(map(str, inputs))}")
    return sources


def fetch_sources(sources: Sequence[Source], file_format: str, hub: HubAccess) -> list[Source]:
    """The same sources, those of the Hub as they are to be read: from the cache, or where they are.

    Raises:
        UserError: a file is of a kind that cannot be read, or not in this way.
        TokenmillError: a file cannot be fetched.
    """
    if not any(source.streamed for source in sources):
        return list(sources)
    if hub.mode == "stream":
        _refuse_other_streams(sources)
    from tokenmill.read.places.hub.selection import suffix_of

    looked_at: dict[str, Source] = {}

    def ready(source: Source) -> Source:
        if not source.origin or (source.streamed and _reads_ranges(source)):
            return source
        if not source.streamed:
            return _detected(source, source.path.name, file_format)
        suffix = suffix_of(source.name)  # as the first one that has it: to look takes a request
        if suffix not in looked_at:
            looked_at[suffix] = _detected(source, source.path.name, file_format)
        first = looked_at[suffix]
        return replace(source, format=first.format, compression=first.compression)

    fetched = list(map(ready, place_sources(sources, hub)))
    _refuse_formats(fetched)
    return fetched


def place_sources(sources: Sequence[Source], hub: HubAccess) -> list[Source]:
    """The same sources, those of the Hub where they are kept, if they are; downloaded, if they are
    to be.

    Raises:
        TokenmillError: a file cannot be fetched.
    """
    from tokenmill.read.places.hub.file import recorded_file
    from tokenmill.read.places.hub.inputs import locate

    distant = [source for source in sources if source.streamed]
    files = [recorded_file(source.origin, source.num_bytes, source.etag) for source in distant]
    indices = [source.index for source in distant]
    paths = dict(zip(indices, locate(files, hub), strict=True))
    return [
        kept_source(source, path) if (path := paths.get(source.index)) else source
        for source in sources
    ]


def _in_order(inputs: Sequence[str], found: Mapping[str, Sequence[Source]]) -> list[Source]:
    """The sources of all inputs, numbered; none twice, and none of the local ones of two kinds."""
    all_found = (source for name in inputs for source in found[name])
    sources = [replace(source, index=index) for index, source in enumerate(all_found)]
    _refuse_repeated(sources)
    _refuse_formats([source for source in sources if not source.streamed])
    return sources


def _local_sources(
    paths: Mapping[str, Sequence[Path]], file_format: str
) -> dict[str, list[Source]]:
    real = real_paths(path for found in paths.values() for path in found)
    common = Path(os.path.commonpath({path.parent for path in real.values()}) if real else "")
    return {
        name: [_local_source(path, real[path], common, file_format) for path in found]
        for name, found in paths.items()
    }


def _local_source(path: Path, real: Path, common: Path, file_format: str) -> Source:
    status = regular_file(path)
    source = Source(
        index=0,
        name=real.relative_to(common).as_posix(),
        path=real,
        num_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        format=file_format,
        compression="none",
    )
    return _detected(source, path.name, file_format)


def hub_source(index: int, file: HubFile, file_format: str) -> Source:
    """A file of the Hub, to be read there. Its name does not depend on what else is read."""
    return Source(
        index=index,
        name=f"{file.repo}/{file.path}",
        path=Path(file.repo, file.path),
        num_bytes=file.num_bytes,
        mtime_ns=0,
        format=_expected_format(file.path, file_format),
        compression="none",
        origin=file.origin,
        etag=file.etag,
        streamed=True,
    )


def kept_source(source: Source, path: Path) -> Source:
    """A file of the Hub where it is kept."""
    status = regular_file(path)
    return replace(source, path=path, mtime_ns=status.st_mtime_ns, streamed=False)


def _detected(source: Source, name: str, file_format: str) -> Source:
    with source.open() as file:
        found, compression = detect(file, source.where, name, file_format)
    return replace(source, format=found, compression=compression)


def _expected_format(name: str, file_format: str) -> str:
    """The format of a file that nobody has looked at: by its name, if parts of it can be read."""
    for known in FORMATS.built_in:
        if name.endswith(FORMATS[known].range_suffixes):
            return known
    return file_format


def _reads_ranges(source: Source) -> bool:
    return source.format != AUTO and bool(FORMATS[source.format].range_suffixes)


def _refuse_other_streams(sources: Sequence[Source]) -> None:
    for source in sources:
        if source.streamed and not _reads_ranges(source):
            raise UserError(
                "an input cannot be streamed",
                where=source.where,
                why="only Parquet files can be streamed; its name does not end in .parquet",
                hint="leave out --streaming to download the files, or give --format parquet if "
                "they are Parquet",
            )


def _refuse_repeated(sources: Sequence[Source]) -> None:
    for of in (lambda source: source.where, lambda source: source.name):
        repeated = [name for name, count in Counter(map(of, sources)).items() if count > 1]
        if repeated:
            why = "its documents would be written twice"
            hint = "name each file once; folders and globs may not overlap"
            raise UserError("an input is named twice", where=repeated[0], why=why, hint=hint)


def _refuse_formats(sources: Sequence[Source]) -> None:
    """Raise a UserError for all files that cannot be read, or for text among records."""
    refuse_foreign((source.origin or source.where, source.format) for source in sources)
    families: dict[str, str] = {}
    for source in sources:
        if source.num_bytes:
            holds_records = FORMATS[source.format].holds_records
            families.setdefault("records" if holds_records else "text", source.name)
    if len(families) > 1:
        raise UserError(
            "the inputs mix plain text with records",
            where=f"{families['text']} is text, {families['records']} holds records",
            why="a stray README or log would become training data",
            hint="name only the files that you mean",
        )
