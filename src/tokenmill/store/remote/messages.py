"""Messages between a loading process and its fetcher; the first is the location of the store."""

from __future__ import annotations

import msgspec

from tokenmill.core.error_records import ErrorRecord


class FetchBlocks(msgspec.Struct, frozen=True, kw_only=True, tag="blocks"):
    """Download a range of an object into a file, unless the file already has it."""

    number: int
    key: str
    path: str
    start: int
    """The first byte, a multiple of 64 KiB."""
    num_bytes: int
    digests: list[int]
    """xxh3-64 of each block of 64 KiB."""


class FetchFile(msgspec.Struct, frozen=True, kw_only=True, tag="file"):
    """Download a whole object into a file."""

    number: int
    key: str
    path: str
    num_bytes: int | None
    """Size of the object; None for small objects of unknown size."""
    digest: str
    """xxh3-128; "" if unknown, for files that contain their own digest."""
    is_compared: bool = False
    """Whether an existing file with this digest is reused; it need not survive a crash.

    Otherwise, the file is always downloaded, and only gets its name when it is complete.
    """


class ListFolder(msgspec.Struct, frozen=True, kw_only=True, tag="list"):
    """List the objects below a folder."""

    number: int
    prefix: str


Request = FetchBlocks | FetchFile | ListFolder


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a request."""

    number: int
    """-1 if the store cannot be opened."""
    failure: ErrorRecord | None = None
    sizes: dict[str, int] = {}
    """Sizes of the listed objects, by name."""
