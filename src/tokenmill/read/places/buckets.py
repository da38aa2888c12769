"""Object stores and web servers as places for inputs; files are read in ranges, not cached.

A name in a bucket is an object, a folder or a glob, as on a disk. Keys are paths, and the parts
before slashes are folders. Some tools create an empty object for a folder itself.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from tokenmill.core.errors import DataError, UserError
from tokenmill.core.globs import fixed_folder, is_glob, matches
from tokenmill.core.paths import is_safe_path
from tokenmill.read.compression import SNIFF_BYTES, damaged
from tokenmill.read.places.folders import (
    DESCRIPTIONS,
    is_saved,
    only_describes,
    require_small,
    saved_files,
)
from tokenmill.read.range_file import ReadAheadFile
from tokenmill.read.source import AUTO, Access, Place, Source
from tokenmill.read.sources import detect
from tokenmill.store.cloud.client import Client, ObjectInfo
from tokenmill.store.cloud.loop import wait
from tokenmill.store.cloud.names import ObjectName

MAX_NAMES_AT_ONCE = 32


class Buckets(Place):
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
    return Client(store)


def _impossible(source: Source, why: str) -> DataError:
    return DataError("a source does not name a valid object", where=source.location, why=why)


MIN_HEAD_BYTES = 8
"""Bytes needed to recognize compressed files and tables."""


class ObjectFile(ReadAheadFile):
    """An object; reads send requests unless the bytes were read ahead.

    Raises:
        InputChangedError: the object was overwritten since it was listed (raised while reading).
        DamagedInputError: its content has another format than its name promises.
        StorageError: the store fails.
    """

    def __init__(self, client: Client, key: str, source: Source, check: Callable[[], None]) -> None:
        super().__init__(source.num_bytes, source.where)
        self._client = client
        self._key = key
        self._source = source
        self._check = check

    def _fetch(self, start: int, stop: int) -> bytes:
        etag = str(self._source.version)
        data = self._client.get_range(self._key, start, stop, etag, self._check)
        return self._expected(start, data)

    def _begin(self, start: int, stop: int) -> Future[bytes]:
        return self._client.begin_range(self._key, start, stop, str(self._source.version))

    def _result(self, start: int, coming: Future[bytes]) -> bytes:
        return self._expected(start, wait(coming, self._check))

    def _expected(self, start: int, data: bytes) -> bytes:
        """Return `data` after checking that the start of a file has the format of its suffix.

        Planning a build only looks into one file of each suffix.
        """
        source = self._source
        if start == 0 and len(data) >= MIN_HEAD_BYTES and source.format != AUTO:
            promised = source.format, source.compression
            found = detect(io.BytesIO(data[:SNIFF_BYTES]), source.where, source.name, promised[0])
            if found != promised:
                shown = [" ".join(dict.fromkeys(each)) for each in (found, promised)]
                why = f"its format is {shown[0]}, but files with its suffix are {shown[1]}"
                raise damaged(source.where, why)
        return data


def expand(client: Client, name: ObjectName, *, is_folder: bool) -> list[ObjectInfo]:
    """Return the objects of an object name, folder or glob in a bucket.

    The order is that of the same files on a disk, without hidden objects. Saved datasets keep their
    row order. `is_folder` is whether the name ends with a slash.

    Raises:
        UserError: no object matches.
        StorageError: the store fails.
    """
    key = name.key
    if is_glob(key):
        folder = _Folder(client, client.list(fixed_folder(key)))
        found = [folder.objects[key]] if key in folder.objects else list(folder.matching(key))
    elif key and not is_folder and (one := client.head(key)):
        _refuse_description(client, name)
        return [one]
    else:
        found = list(_Folder(client, client.list(key)).below(key))
    if not found:
        hint = "check the bucket and the path or glob"
        raise UserError("an input does not exist", where=str(name), hint=hint)
    return found


class _Folder:
    """A listed part of a bucket."""

    def __init__(self, client: Client, listed: Iterable[ObjectInfo]) -> None:
        self._client = client
        found = {info.key: info for info in listed}
        self.folders = {
            str(parent) for key in found for parent in PurePosixPath(key).parents if parent.name
        }
        self.objects = {
            key: info for key, info in found.items() if info.num_bytes or key not in self.folders
        }

    def matching(self, pattern: str) -> Iterator[ObjectInfo]:
        """Yield the objects that match a glob, sorted, with the content of matching folders."""
        wanted = pattern.split("/")
        for key in sorted(self.objects.keys() | self.folders):
            if matches(key.split("/"), wanted, hidden=False):
                if key in self.objects:
                    yield self.objects[key]
                else:
                    yield from self.below(key)

    def below(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield everything in a folder: first its objects, then those of its subfolders."""
        if is_saved(PurePosixPath(folder), self.is_file):
            for path in saved_files(PurePosixPath(folder), self.is_file, self._read):
                yield self.objects[str(path)]
            return
        hidden = f"{folder}/." if folder else "."
        inside = sorted(key for key in self._children.get(folder, ()) if not key.startswith(hidden))
        yield from (self.objects[key] for key in inside if key in self.objects)
        for key in inside:
            if key in self.folders:
                yield from self.below(key)

    @functools.cached_property
    def _children(self) -> dict[str, list[str]]:
        """The names directly in each folder."""
        children: dict[str, list[str]] = {}
        for key in self.objects.keys() | self.folders:
            children.setdefault(key.rpartition("/")[0], []).append(key)
        return children

    def is_file(self, path: PurePosixPath) -> bool:
        """Return whether an object exists."""
        return str(path) in self.objects

    def _read(self, path: PurePosixPath) -> bytes:
        found = self.objects[str(path)]
        require_small(found.num_bytes)
        data = self._client.get(found.key, found.etag)
        if data is None:
            raise FileNotFoundError("the file does not exist")
        return data


def _refuse_description(client: Client, name: ObjectName) -> None:
    """Raise a UserError for an object that only describes a saved dataset."""
    path = PurePosixPath(name.key)
    if path.name not in DESCRIPTIONS:
        return
    parent = str(path.parent) if path.parent.name else ""
    if is_saved(path.parent, _Folder(client, client.list_folder(parent)).is_file):
        raise only_describes(str(name), f"{name.store}/{parent}")
