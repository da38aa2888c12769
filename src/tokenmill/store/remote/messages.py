"""What a loading process and its fetcher say to each other, one JSON document a line."""

from __future__ import annotations

import msgspec

from tokenmill.error_records import ErrorRecord


class FetchBlocks(msgspec.Struct, frozen=True, kw_only=True, tag="blocks"):
    """Bring some bytes of an object into a file, unless they are there."""

    number: int
    key: str
    path: str
    start: int
    """The first byte, a multiple of 64 KiB."""
    num_bytes: int
    digests: list[int]
    """xxh3-64 of each block of 64 KiB."""


class FetchFile(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """Make a file of a whole object."""

    number: int
    key: str
    path: str
    num_bytes: int | None
    """None: unknown, and small."""
    digest: str
    """xxh3-128; "" where nobody knows it, and the file is checked by what is in it."""
    is_compared: bool = False
    """Whether a file that is there counts if its digest is this one; it need not survive a crash.

    Without it, the file is brought in any case, and is whole whenever it has its name.
    """


class ListFolder(msgspec.Struct, frozen=True, kw_only=True, tag="list"):
    """Name the objects below a folder."""

    number: int
    prefix: str


Request = FetchBlocks | FetchFile | ListFolder


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the store that everything else is about."""

    location: str


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request ended."""

    number: int
    failure: ErrorRecord | None = None
    sizes: dict[str, int] = {}
    """Of objects that were listed, by name."""
