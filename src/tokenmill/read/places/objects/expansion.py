"""Expansion of a name in a bucket to objects: an object, a folder or a glob, as on a disk.

Keys are paths, and the parts before slashes are folders. Some tools create an empty object for a
folder itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tokenmill.core.errors import UserError
from tokenmill.read.places.globs import fixed_folder, is_glob, matches
from tokenmill.read.places.saved import DESCRIPTIONS, is_saved, saved_files
from tokenmill.store.cloud.client import Client, ObjectInfo
from tokenmill.store.cloud.names import ObjectName


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
        if is_saved(PurePosixPath(folder), self):
            for path in saved_files(PurePosixPath(folder), self):
                yield self.objects[str(path)]
            return
        inside = sorted(key for key in self._children.get(folder, ()) if not _is_hidden(key))
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

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """Return the bytes of a small object."""
        found = self.objects[str(path)]
        if found.num_bytes > max_bytes:
            raise ValueError(f"the file has over {max_bytes} bytes")
        data = self._client.get(found.key, found.etag)
        if data is None:
            raise FileNotFoundError("the file does not exist")
        return data


def _is_hidden(key: str) -> bool:
    return key.rpartition("/")[2].startswith(".")


def _refuse_description(client: Client, name: ObjectName) -> None:
    """Raise a UserError for an object that only describes a saved dataset."""
    path = PurePosixPath(name.key)
    if path.name not in DESCRIPTIONS:
        return
    parent = str(path.parent) if path.parent.name else ""
    if is_saved(path.parent, _Folder(client, client.list_folder(parent))):
        raise UserError(
            "the file describes a saved dataset and contains no records",
            where=str(name),
            hint=f"name the folder: {name.store}/{parent}",
        )
