"""Sources, and the interface of the places from which they are read.

To add a place, write one module with a subclass of `Place`, or a class that has its members, and
register it in the packaging metadata under its scheme. It then handles inputs SCHEME://...:

    [project.entry-points."tokenmill.places"]
    ftp = "my_package.ftp:Ftp"
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from tokenmill.core.errors import InputChangedError
from tokenmill.read.registry import Registry

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


AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An input file, as found when the build was planned."""

    index: int = 0
    """The number of the source among all sources."""
    name: str
    """Path relative to the inputs' common folder, with slashes; the same on every machine."""
    place: str
    """Registered name of the place."""
    location: str
    """Address in the place: a path as given, or hf://datasets/OWNER/NAME@COMMIT/PATH."""
    version: str | int
    """A value that changes with the file, in addition to its size: the mtime in ns of a local file,
    a digest or similar for any other.
    """
    num_bytes: int
    format: str = AUTO
    """A registered format; "auto" before detection, and a kind in `foreign.ADVICE` for a file that
    cannot be read.
    """
    compression: str = "none"
    """none, gzip, zstd, bzip2 or xz."""
    path: Path | None = None
    """The local file; None if the source is streamed."""
    mtime_ns: int = 0
    """The mtime of the local file."""
    text_field: str = ""
    """The field with the text; "" for that of the run."""
    chosen_format: str = AUTO
    """The format that the user chose."""
    in_parts: bool = False
    """Whether a streamed source is cut and grouped like a local file."""

    @property
    def is_distant(self) -> bool:
        """Whether the source has no local file and is streamed."""
        return self.path is None

    @property
    def where(self) -> str:
        """The address of the file for messages and records."""
        return self.location if self.path is None else str(self.path)

    @property
    def origin(self) -> str:
        """The location of a remote file, downloaded or not; "" for a local file."""
        return "" if self.place == LOCAL else self.location

    def kept_at(self, path: Path) -> Source:
        """Return the source with a local file."""
        return replace(self, path=path, mtime_ns=path.stat().st_mtime_ns)

    def open(self, check: Callable[[], None] = lambda: None) -> BinaryIO:
        """Open the file; `check` is called repeatedly while waiting for a server."""
        if self.path is not None:
            return open(self.path, "rb")
        return PLACES[self.place].open(self, check)

    def require_unchanged(self) -> None:
        """Raise an InputChangedError if the local file has changed.

        Remote files are compared with their version while they are read.
        """
        if self.path is None:
            return
        status = self.path.stat()
        found = (status.st_size, status.st_mtime_ns)
        if found != (self.num_bytes, self.mtime_ns):
            raise InputChangedError(
                "an input changed during the build",
                where=str(self.path),
                why=f"size and mtime were {self.num_bytes}, {self.mtime_ns}; they are now {found}",
                hint="once it no longer changes, build again with --overwrite",
            )


Sources = Sequence[Source] | Mapping[int, Source]
"""Sources by index: all of them, or only the needed ones."""


class Place(Protocol):
    """A place from which inputs are read.

    Methods raise a UserError if an input does not exist or access is denied, and a StorageError if
    the place fails.
    """

    @abstractmethod
    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        """Return the files that each name stands for, in order, without fetching them.

        A source has a name, location, version and size; index, format and compression are filled in
        later. If possible, location and version are the same on every machine. They are stored in
        datasets, so a location must contain no secret. It begins with the scheme.
        """

    def fetch(self, sources: Sequence[Source], access: Access) -> Sequence[Source]:
        """Return the sources, with local paths for those that are downloaded or cached."""
        return sources

    @abstractmethod
    def open(self, source: Source, check: Callable[[], None]) -> BinaryIO:
        """Open a source that has no local file, as a seekable file.

        Reading raises an InputChangedError if the version has changed, and calls `check`, which may
        raise, repeatedly while waiting. A `RangeFile` is told which ranges will be read.
        """

    @abstractmethod
    def find_again(self, source: Source, path: Path) -> Source:
        """Return a source from a record of an earlier build; `path` was its local file, if any.

        Raises:
            DataError: the record does not name a valid file.
            UserError: the file has changed.
        """

    def commits(self, sources: Sequence[Source]) -> Mapping[str, str]:
        """Return the commit of each name when it was listed, for the identity of a build."""
        return {}

    def pinned(self, name: str, commits: Mapping[str, str]) -> str:
        """Return a name that is pinned to its commit in `commits`; "" if it has none."""
        return ""


PLACES: Registry[Place] = Registry(
    "tokenmill.places",
    "place",
    {
        LOCAL: "tokenmill.read.places.local:Local",
        "hf": "tokenmill.read.places.hub.place:Hub",
        "s3": "tokenmill.read.places.buckets:Buckets",
        "gs": "tokenmill.read.places.buckets:Buckets",
        "az": "tokenmill.read.places.buckets:Buckets",
        "http": "tokenmill.read.places.buckets:WebFiles",
        "https": "tokenmill.read.places.buckets:WebFiles",
    },
    Place,
)


def place_of(name: str) -> str:
    """Return the place of an input by its scheme; names without a known scheme are local."""
    scheme = _SCHEME.match(name)
    return scheme[1] if scheme and scheme[1] in PLACES else LOCAL
