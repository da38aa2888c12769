"""Inputs as the user names them to an ordered, fingerprinted list of sources."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import msgspec

from tokenmill.errors import DataError, InputChangedError, UserError
from tokenmill.read.compression import SNIFF_BYTES, compression_of, decompressed
from tokenmill.read.hub.names import is_hub_name
from tokenmill.read.saved import is_saved, saved_files

if TYPE_CHECKING:
    from tokenmill.read.hub.inputs import HubAccess, HubInput

RECORD_SUFFIXES = {".jsonl", ".ndjson", ".json"}
_JSON_OBJECT_STARTS = re.compile(rb'\{\s*"')


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
    """jsonl, text, parquet, arrow-file or arrow-stream."""
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
        from tokenmill.read.hub.remote_file import open_remote

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
                "an input changed while it was being built from",
                where=str(self.path),
                why=f"size and mtime were {self.num_bytes}, {self.mtime_ns}; now {found}",
                hint="start again with --overwrite when it no longer changes",
            )


def find_sources(
    inputs: Sequence[str], file_format: str = "auto", hub: HubAccess | None = None
) -> list[Source]:
    """All files that `inputs` (files, folders, globs, names on the Hub) name, in argument order,
    folders sorted.

    Raises:
        UserError: nothing matches, a file is named twice, is not a regular file, is of a kind
            that cannot be read, or files of different kinds are mixed without `file_format`.
    """
    names = [name for name in inputs if is_hub_name(name)]
    on_hub: dict[str, list[HubInput]] = {}
    if names:
        from tokenmill.read.hub.inputs import HubAccess, find_hub_inputs

        on_hub = find_hub_inputs(names, hub or HubAccess())
    found = [entry for name in inputs for entry in on_hub.get(name) or _expand(name)]
    if not found:
        raise UserError("no input files", why=f"nothing is below {', '.join(map(str, inputs))}")
    paths = [entry for entry in found if isinstance(entry, Path)]
    _refuse_unspeakable([path.resolve() for path in paths])
    common = os.path.commonpath([path.resolve().parent for path in paths]) if paths else ""
    sources = [
        _local_source(index, entry, Path(common), file_format)
        if isinstance(entry, Path)
        else hub_source(index, entry, file_format)
        for index, entry in enumerate(found)
    ]
    _refuse_repeated(sources)
    _refuse_mixture(sources)
    return sources


def _local_source(index: int, path: Path, common: Path, file_format: str) -> Source:
    status, real = _regular_file(path), path.resolve()
    source = Source(
        index=index,
        name=real.relative_to(common).as_posix(),
        path=real,
        num_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        format=file_format,
        compression="none",
    )
    return _detected(source, path.name)


def hub_source(index: int, found: HubInput, file_format: str) -> Source:
    """The source for a file of the Hub. Its name does not depend on what else is read, nor its
    place on where it is kept.
    """
    file = found.file
    status = _regular_file(found.path) if found.path else None
    source = Source(
        index=index,
        name=f"{file.repo}/{file.path}",
        path=found.path or Path(file.repo, file.path),
        num_bytes=file.num_bytes,
        mtime_ns=status.st_mtime_ns if status else 0,
        format=file_format,
        compression="none",
        origin=file.origin,
        etag=file.etag,
        streamed=found.path is None,
    )
    if source.streamed and file.path.endswith(".parquet"):
        return replace(source, format="parquet")  # not asked for: a request for every file
    return _detected(source, file.path.rpartition("/")[2])


def _refuse_repeated(sources: Sequence[Source]) -> None:
    for of in (lambda source: source.where, lambda source: source.name):
        repeated = [name for name, count in Counter(map(of, sources)).items() if count > 1]
        if repeated:
            why = "its documents would be written twice"
            hint = "name each file once; folders and globs may not overlap"
            raise UserError("an input is named twice", where=repeated[0], why=why, hint=hint)


def _expand(name: str) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        for folder, folders, files in os.walk(path, onerror=_refuse_folder):
            if is_saved(Path(folder)):
                folders.clear()
                yield from saved_files(Path(folder))
                continue
            folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
            yield from (Path(folder) / file for file in sorted(files) if not file.startswith("."))
    elif os.path.lexists(path):
        yield path
    else:
        matches = sorted(glob.glob(name, recursive=True))
        if not matches:
            raise UserError(
                "an input does not exist", where=name, hint="check the spelling of the path or glob"
            )
        for match in matches:
            yield from _expand(match)


def _refuse_folder(error: OSError) -> None:
    """A folder that cannot be listed may hold inputs, so it is not passed over."""
    where = str(error.filename)
    raise UserError("a folder cannot be read", where=where, why=str(error)) from error


def _refuse_unspeakable(paths: Sequence[Path]) -> None:
    """Manifests are UTF-8 and name every source."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            why, hint = "its name is not UTF-8", "rename it"
            raise UserError(
                "an input cannot be named", where=ascii(path), why=why, hint=hint
            ) from error


def _regular_file(path: Path) -> os.stat_result:
    try:
        status = path.stat()
        with open(path, "rb") if stat.S_ISREG(status.st_mode) else open(os.devnull):
            pass
    except OSError as error:
        raise UserError("an input cannot be read", where=str(path), why=str(error)) from error
    if not stat.S_ISREG(status.st_mode):
        why = "it is a device, a pipe or a socket"
        raise UserError("an input is not a regular file", where=str(path), why=why)
    return status


def _detected(source: Source, name: str) -> Source:
    """A source with format and compression, from its first bytes and then from its name."""
    with source.open() as file:
        head = file.read(SNIFF_BYTES)
    if head.startswith(b"PAR1"):
        return replace(source, format="parquet")
    if head.startswith(b"ARROW1\x00\x00"):
        return replace(source, format="arrow-file")
    if head.startswith(b"\xff\xff\xff\xff") and len(head) >= 8:
        return replace(source, format="arrow-stream")
    source = replace(source, compression=compression_of(head))
    if source.compression != "none":
        name = Path(name).stem if len(Path(name).suffixes) > 1 else name
        try:
            with (
                source.open() as raw,
                decompressed(raw, source.where, source.compression) as stream,
            ):
                head = stream.read(SNIFF_BYTES)
        except DataError:
            head = b""  # the unit that reads the file reports the damage
    if source.format != "auto":
        return source
    return replace(source, format=_detect_text(source.where, Path(name), head))


def _detect_text(where: str, name: Path, head: bytes) -> str:
    suffix = name.suffix.lower()
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = f"convert it first: iconv -f UTF-16 -t UTF-8 {name}"
        raise UserError("an input is UTF-16, not UTF-8", where=where, hint=hint)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"[") and suffix == ".json":
        why = "it is one JSON array, not one JSON object a line"
        hint = f"convert it first: jq -c '.[]' {name} > {name.stem}.jsonl"
        raise UserError("an input is not JSON Lines", where=where, why=why, hint=hint)
    line, newline, _ = start.partition(b"\n")
    whole = newline or len(head) < SNIFF_BYTES
    is_object = _is_json_object(line) if whole else _JSON_OBJECT_STARTS.match(line)
    if suffix in RECORD_SUFFIXES or is_object:
        return "jsonl"
    if b"\x00" in head and suffix != ".txt":
        why = "it is neither text nor JSON Lines, Parquet or Arrow"
        raise UserError("an input is of an unknown kind", where=where, why=why)
    return "text"


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _refuse_mixture(sources: Sequence[Source]) -> None:
    families: dict[str, str] = {}
    for source in sources:
        if source.num_bytes:
            families.setdefault("text" if source.format == "text" else "records", source.name)
    if len(families) > 1:
        raise UserError(
            "the inputs mix plain text with records",
            where=f"{families['text']} is text, {families['records']} holds records",
            why="a stray README or log would become training data",
            hint="name the files that you mean, or say --format for all of them",
        )
