"""What a place is: where inputs are, and how their bytes are had.

To add a place, write one module with a class that has the members of `Place`, and register it in
the packaging metadata under the scheme of its names; inputs SCHEME://... are then its own:

    [project.entry-points."tokenmill.places"]
    ftp = "my_package.ftp:Ftp"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol

from tokenmill.read.registry import Registry

if TYPE_CHECKING:
    from tokenmill.read.sources import Source

LOCAL = "local"
"""The place of files on this machine."""

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")


ReadMode = Literal["download", "stream", "sample"]
"""Kept on this machine first, if the place does that; read where they are; read where they are
unless they are kept already.
"""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """One moment while files are fetched."""

    done_bytes: int
    """With what was kept before."""
    total_bytes: int
    done_files: int
    num_files: int


FetchListener = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True)
class Access:
    """How files that are elsewhere are to be read."""

    mode: ReadMode = "download"
    cache_dir: str | None = None
    """Where they are kept; None: the usual folder of the place."""
    listener: FetchListener = lambda progress: None


class Place(Protocol):
    """Where inputs are.

    Methods raise a UserError if an input does not exist or may not be read, and a StorageError if
    the place fails.
    """

    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        """The files that each name stands for, in order. Nothing of them is fetched.

        A source has its name below the place, location, version and size; its index, format and
        compression are filled in later. Location and version are the same on every machine, if they
        can be, and are found in records: a location holds no secret and begins with the scheme.
        """

    def fetch(self, sources: Sequence[Source], access: Access) -> Sequence[Source]:
        """The same sources, those that are kept on this machine with their paths there."""

    def open(self, source: Source, check: Callable[[], None]) -> BinaryIO:
        """The bytes of a source that is not kept on this machine, as a seekable file.

        Reading it raises an InputChangedError if it no longer has its version, and calls `check`,
        which may raise, now and then while it waits. A `RangeFile` is told what will be read.
        """

    def find_again(self, source: Source, path: Path) -> Source:
        """A source that a record names, whose file was at `path` if it was on this machine.

        Raises:
            DataError: there can be no such file.
            UserError: it is no longer what it was.
        """

    def commits(self, sources: Sequence[Source]) -> Mapping[str, str]:
        """What names stood for when they were listed, for the identity of a build; may be empty."""

    def pinned(self, name: str, commits: Mapping[str, str]) -> str:
        """A name that stands for what it stood for with `commits`; "" if they do not say."""


PLACES: Registry[Place] = Registry(
    "tokenmill.places",
    "place",
    {
        LOCAL: "tokenmill.read.places.local:Local",
        "hf": "tokenmill.read.places.hub.place:Hub",
        "s3": "tokenmill.read.places.objects.place:Buckets",
        "gs": "tokenmill.read.places.objects.place:Buckets",
        "az": "tokenmill.read.places.objects.place:Buckets",
        "http": "tokenmill.read.places.objects.place:WebFiles",
        "https": "tokenmill.read.places.objects.place:WebFiles",
    },
    Place,
)


def place_of(name: str) -> str:
    """The place that an input names by its scheme; names without a known one are local."""
    scheme = _SCHEME.match(name)
    return scheme[1] if scheme and scheme[1] in PLACES else LOCAL
