"""Object stores and web servers as places for inputs; files are read in ranges, not cached."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from tokenmill.core.errors import DataError, UserError
from tokenmill.core.paths import is_safe_path
from tokenmill.read.places.globs import is_glob
from tokenmill.read.places.objects.expansion import expand
from tokenmill.read.places.objects.file import ObjectFile
from tokenmill.read.places.place import Access
from tokenmill.read.sources import Source
from tokenmill.store.cloud.client import Client, ObjectInfo, open_client
from tokenmill.store.cloud.names import ObjectName

MAX_NAMES_AT_ONCE = 32


class Buckets:
    """Objects in buckets, identified by their ETags."""

    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        """Return the objects of each name, with paths relative to their common folder."""
        with ThreadPoolExecutor(min(len(names), MAX_NAMES_AT_ONCE), "list") as threads:
            found = dict(zip(names, threads.map(self._expand, names), strict=True))
        paths = [_path(where, info) for where, infos in found.values() for info in infos]
        common = os.path.commonpath([path.rpartition("/")[0] for path in paths])

        def source(where: ObjectName, info: ObjectInfo) -> Source:
            return _source(where, info, _path(where, info)[len(common) + 1 :])

        return {
            name: [source(where, info) for info in infos] for name, (where, infos) in found.items()
        }

    def _expand(self, name: str) -> tuple[ObjectName, Sequence[ObjectInfo]]:
        parsed = ObjectName.parse(name)
        client = _client(parsed.store)
        return parsed, expand(client, parsed, is_folder=name.endswith("/"))

    def fetch(self, sources: Sequence[Source], access: Access) -> Sequence[Source]:
        """Return the sources unchanged, because they are read without a download."""
        return sources

    def open(self, source: Source, check: Callable[[], None]) -> BinaryIO:
        """Open an object that fetches ranges as they are read, and the next ones ahead."""
        name = ObjectName.parse(source.location)
        return cast(BinaryIO, ObjectFile(_client(name.store), name.key, source, check))

    def find_again(self, source: Source, path: Path) -> Source:
        """Return the object; reading it fails if its version has changed."""
        try:
            name = ObjectName.parse(source.location)
        except UserError as error:
            raise _impossible(source, error.why) from error
        if not (name.key and is_safe_path(name.key) and source.num_bytes >= 0):
            raise _impossible(source, "its name or its size is not valid for an object")
        if not (isinstance(source.version, str) and source.version):
            raise _impossible(source, "its version is not recorded")
        return replace(source, location=str(name), in_parts=True)

    def commits(self, sources: Sequence[Source]) -> Mapping[str, str]:
        """Return nothing, because objects have no commits."""
        return {}

    def pinned(self, name: str, commits: Mapping[str, str]) -> str:
        return ""


class WebFiles(Buckets):
    """Single files on web servers, which cannot list folders."""

    def _expand(self, name: str) -> tuple[ObjectName, Sequence[ObjectInfo]]:
        parsed = ObjectName.parse(name)
        if not parsed.key or name.endswith("/"):
            why = "web servers cannot list folders"
            hint = "name each file"
            raise UserError("the address does not name a file", where=name, why=why, hint=hint)
        found = _client(parsed.store).head(parsed.key)
        if found is None:
            hint = "check the spelling"
            if is_glob(parsed.key):
                hint = "name each file: globs do not work because web servers cannot list folders"
            raise UserError("an input does not exist", where=str(parsed), hint=hint)
        return parsed, [found]


def _source(where: ObjectName, info: ObjectInfo, name: str) -> Source:
    full = ObjectName(where.scheme, where.bucket, info.key)
    if not is_safe_path(info.key):
        why = "its name contains a backslash or a control character"
        raise UserError("cannot use the name of an input", where=str(full), why=why)
    if not info.etag:
        raise UserError(
            "an input has no version",
            where=str(full),
            why="the server sends neither an ETag nor a Last-Modified time, so tokenmill could "
            "not detect a change during the build",
            hint="download the file",
        )
    return Source(
        name=name,
        place=where.scheme,
        location=str(full),
        version=info.etag,
        num_bytes=info.num_bytes,
        in_parts=True,
    )


def _path(where: ObjectName, info: ObjectInfo) -> str:
    return f"{where.bucket}/{info.key}"


@functools.lru_cache(maxsize=64)
def _client(store: str) -> Client:
    return open_client(store)


def _impossible(source: Source, why: str) -> DataError:
    return DataError("a source does not name a valid object", where=source.location, why=why)
