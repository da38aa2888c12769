"""The interface of the location that a build writes to: named objects, and one primitive.

The primitive is `create`: if many processes on any machines create the same object, one of them
wins, and all of them learn its content. All other operations may be late, lost or repeated.
Folders implement it with link(2), buckets with conditional requests. `opening.py` tests it before
any work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from tokenmill.store.canonical import canonical_json, sealed, unseal

T = TypeVar("T", bound=msgspec.Struct)


class ObjectStore(Protocol):
    """Objects with names like "work/receipts/00000003-000001.json"; each is whole or absent.

    Methods raise a StorageError if the store fails.
    """

    @property
    def location(self) -> str:
        """The folder, or scheme://bucket/prefix; contains no secret."""

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        """Create an object and return its content: `data`, or what another process wrote first.

        Lost answers are harmless: a process that finds its own bytes has won. If processes can
        create the same data but only one may win, each must add something unique to the data.
        Without `durable`, a power cut may undo the creation.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Create or replace an object; only for hints."""

    def add_files(self, files: Mapping[str, Path]) -> None:
        """Create objects from finished local files; the files may be moved.

        The objects are durable when this returns. Existing objects are replaced, which is safe
        because a name always has the same content.
        """

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object, or None if it does not exist."""

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield (name, bytes) of many objects as `read` does, concurrently and in any order."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the sizes in bytes of the objects directly in a folder; new ones may be missing.

        The folder "" is the root of the store.
        """

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes, or None if it does not exist."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove the objects that exist, concurrently."""


def create_record(store: ObjectStore, name: str, value: T) -> T:
    """Create a sealed object and return its content: `value`, or what was written first.

    Raises:
        VerificationError: the existing object is damaged.
    """
    record = sealed(value)
    data = canonical_json(record)
    held = store.create(name, data)
    return record if held == data else open_record(store, name, held, type(value))


def open_record(store: ObjectStore, name: str, data: bytes | None, kind: type[T]) -> T:
    """Decode the bytes of a sealed object.

    Raises:
        VerificationError: the object is damaged or missing.
    """
    return unseal(data or b"", kind, f"{store.location}/{name}")
