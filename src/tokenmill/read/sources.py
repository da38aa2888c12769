"""Inputs as the user names them to an ordered, fingerprinted list of sources."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.errors import DataError, InputChangedError, UserError
from tokenmill.read.compression import SNIFF_BYTES, compression_of, open_decompressed

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

    def require_unchanged(self) -> None:
        """Raise an InputChangedError where the file is not as it was found."""
        status = self.path.stat()
        found = (status.st_size, status.st_mtime_ns)
        if found != (self.num_bytes, self.mtime_ns):
            raise InputChangedError(
                "an input changed while it was being built from",
                where=str(self.path),
                why=f"size and mtime were {self.num_bytes}, {self.mtime_ns}; now {found}",
                hint="start again with --overwrite when it no longer changes",
            )


def find_sources(inputs: Sequence[str], file_format: str = "auto") -> list[Source]:
    """All files that `inputs` (files, folders, globs) name, in argument order, folders sorted.

    Raises:
        UserError: nothing matches, a file is named twice, is not a regular file, is of a kind
            that cannot be read, or files of different kinds are mixed without `file_format`.
    """
    paths = [path for name in inputs for path in _expand(name)]
    if not paths:
        raise UserError("no input files", why=f"nothing is below {', '.join(map(str, inputs))}")
    resolved = [path.resolve() for path in paths]
    repeated = [str(path) for path, count in Counter(resolved).items() if count > 1]
    if repeated:
        why = "its documents would be written twice"
        hint = "name each file once; folders and globs may not overlap"
        raise UserError("an input is named twice", where=repeated[0], why=why, hint=hint)
    _refuse_unspeakable(resolved)
    common = Path(os.path.commonpath([path.parent for path in resolved]))
    sources = []
    for index, (path, real) in enumerate(zip(paths, resolved, strict=True)):
        status = _regular_file(path)
        detected, compression = _detect(path, file_format)
        name = real.relative_to(common).as_posix()
        sources.append(
            Source(index, name, real, status.st_size, status.st_mtime_ns, detected, compression)
        )
    _refuse_mixture(sources)
    return sources


def _expand(name: str) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        for folder, folders, files in os.walk(path, onerror=_refuse_folder):
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


def _detect(path: Path, file_format: str) -> tuple[str, str]:
    """The (format, compression) of a file, from its first bytes and then from its name."""
    with open(path, "rb") as file:
        head = file.read(SNIFF_BYTES)
    if head.startswith(b"PAR1"):
        return "parquet", "none"
    if head.startswith(b"ARROW1\x00\x00"):
        return "arrow-file", "none"
    if head.startswith(b"\xff\xff\xff\xff") and len(head) >= 8:
        return "arrow-stream", "none"
    compression = compression_of(head)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if compression != "none":
        suffixes = suffixes[:-1] if len(suffixes) > 1 else suffixes
        try:
            with open_decompressed(path, compression) as stream:
                head = stream.read(SNIFF_BYTES)
        except DataError:
            head = b""  # the unit that reads the file reports the damage
    if file_format != "auto":
        return file_format, compression
    return _detect_text(path, head, suffixes[-1] if suffixes else ""), compression


def _detect_text(path: Path, head: bytes, suffix: str) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        hint = f"convert it first: iconv -f UTF-16 -t UTF-8 {path.name}"
        raise UserError("an input is UTF-16, not UTF-8", where=str(path), hint=hint)
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"[") and suffix == ".json":
        why = "it is one JSON array, not one JSON object a line"
        hint = f"convert it first: jq -c '.[]' {path.name} > {path.stem}.jsonl"
        raise UserError("an input is not JSON Lines", where=str(path), why=why, hint=hint)
    line, newline, _ = start.partition(b"\n")
    whole = newline or len(head) < SNIFF_BYTES
    is_object = _is_json_object(line) if whole else _JSON_OBJECT_STARTS.match(line)
    if suffix in RECORD_SUFFIXES or is_object:
        return "jsonl"
    if b"\x00" in head and suffix != ".txt":
        why = "it is neither text nor JSON Lines, Parquet or Arrow"
        raise UserError("an input is of an unknown kind", where=str(path), why=why)
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
