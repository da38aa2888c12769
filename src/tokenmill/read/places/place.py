"""The interface of places, from which inputs are read.

To add a place, write one module with a class that has the members of `Place`, and register it in
the packaging metadata under its scheme. It then handles inputs SCHEME://...:

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
"""How remote files are read: downloaded first, if the place supports it; streamed; or streamed
unless they are already cached.
"""


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """The progress of a download."""

    done_bytes: int
    """Bytes that are complete, including those cached before."""
    total_bytes: int
    done_files: int
    num_files: int


FetchListener = Callable[[FetchProgress], None]


@dataclass(frozen=True, slots=True)
class Access:
    """How remote files are read."""

    mode: ReadMode = "download"
    cache_dir: str | None = None
    """The cache folder; None for the default of the place."""
    listener: FetchListener = lambda progress: None


class Place(Protocol):
    """A place from which inputs are read.

    Methods raise a UserError if an input does not exist or access is denied, and a StorageError if
    the place fails.
    """

    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        """Return the files that each name stands for, in order, without fetching them.

        A source has a name, location, version and size; index, format and compression are filled in
        later. If possible, location and version are the same on every machine. They are stored in
        datasets, so a location must contain no secret. It begins with the scheme.
        """

    def fetch(self, sources: Sequence[Source], access: Access) -> Sequence[Source]:
        """Return the sources, with local paths for those that are downloaded or cached."""

    def open(self, source: Source, check: Callable[[], None]) -> BinaryIO:
        """Open a source that has no local file, as a seekable file.

        Reading raises an InputChangedError if the version has changed, and calls `check`, which may
        raise, repeatedly while waiting. A `RangeFile` is told which ranges will be read.
        """

    def find_again(self, source: Source, path: Path) -> Source:
        """Return a source from a record of an earlier build; `path` was its local file, if any.

        Raises:
            DataError: the record does not name a valid file.
            UserError: the file has changed.
        """

    def commits(self, sources: Sequence[Source]) -> Mapping[str, str]:
        """Return the commit of each name when it was listed, for the identity of a build."""

    def pinned(self, name: str, commits: Mapping[str, str]) -> str:
        """Return a name that is pinned to its commit in `commits`; "" if it has none."""


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
    """Return the place of an input by its scheme; names without a known scheme are local."""
    scheme = _SCHEME.match(name)
    return scheme[1] if scheme and scheme[1] in PLACES else LOCAL
