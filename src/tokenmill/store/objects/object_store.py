"""What a build needs of the place that it writes to: objects by name, and one primitive.

The primitive is `create`: of many processes, anywhere, that create an object of one name, one wins,
and all learn what it holds. Everything else may be late, lost or done twice. A folder has it by
link(2), object stores by conditional requests; `probe.py` tries it before any work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object in a listing."""

    name: str
    num_bytes: int


class ObjectStore(Protocol):
    """Objects by name, as "work/receipts/00000003-000001.json"; each is whole or absent.

    Methods raise a StorageError where the place fails.
    """

    @property
    def location(self) -> str:
        """The folder, or scheme://bucket/prefix; it holds no secret."""

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        """What the name holds from now on: `data`, or what was there first.

        An answer that was lost costs nothing: whoever finds its own bytes has won. What several
        processes may create without being equal needs a word of its own in it. Without `durable`, a
        power cut may undo it.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Store an object in the place of any other: for hints."""

    def add_files(self, files: Mapping[str, Path]) -> None:
        """Make objects of finished files of this machine, by name; the files may be moved.

        They last when this returns. What had a name is replaced: a name has only ever one content.
        """

    def read(self, name: str) -> bytes | None:
        """The bytes of an object; None if there is none."""

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield names and bytes as `read`, many at once, in any order."""

    def entries(self, folder: str) -> Iterator[ObjectEntry]:
        """Yield the objects directly in a folder, in any order; those just made may be missing.

        The folder "" is the whole place.
        """

    def size(self, name: str) -> int | None:
        """Bytes of an object; None if there is none."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove those objects that there are, many at once."""
