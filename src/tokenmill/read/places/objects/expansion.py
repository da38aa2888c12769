"""What a name in a bucket stands for: an object, a folder or a glob, as on a disk.

Keys are paths, and what comes before a slash is a folder. An empty object with the name of a folder
is what some tools make of the folder itself.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from tokenmill.cloud.client import Client, ObjectInfo
from tokenmill.cloud.names import ObjectName
from tokenmill.errors import UserError
from tokenmill.read.places.globs import fixed_folder, is_glob, matches
from tokenmill.read.places.saved import DESCRIPTIONS, is_saved, saved_files


def expand(client: Client, name: ObjectName, *, is_folder: bool) -> list[ObjectInfo]:
    """The objects of an object, folder or glob of a bucket: in the order of the same files on a
    disk, without those that are hidden, saved data sets in their own order.

    `is_folder`: the name ends with a slash.

    Raises:
        UserError: nothing matches.
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
    """Part of a bucket, as it is listed."""

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
        """What a glob takes, sorted; of folders, all that is in them."""
        wanted = pattern.split("/")
        for key in sorted(self.objects.keys() | self.folders):
            if matches(key.split("/"), wanted, hidden=False):
                if key in self.objects:
                    yield self.objects[key]
                else:
                    yield from self.below(key)

    def below(self, folder: str) -> Iterator[ObjectInfo]:
        """All that is in a folder: its objects before those of the folders in it."""
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
        """The objects and folders directly in each folder."""
        children: dict[str, list[str]] = {}
        for key in self.objects.keys() | self.folders:
            children.setdefault(key.rpartition("/")[0], []).append(key)
        return children

    def is_file(self, path: PurePosixPath) -> bool:
        """Whether there is an object."""
        return str(path) in self.objects

    def read(self, path: PurePosixPath, max_bytes: int) -> bytes:
        """The bytes of a small object."""
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
    """Raise a UserError for an object that says what a saved data set is made of."""
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
