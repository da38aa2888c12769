"""What a loading process and its fetcher say to each other, one JSON document a line."""

from __future__ import annotations

import msgspec

from tokenmill.cloud.failures import MissingObjectError
from tokenmill.errors import (
    InputChangedError,
    InternalError,
    StorageError,
    TokenmillError,
    UserError,
    VerificationError,
)

KINDS: dict[str, type[TokenmillError]] = {
    kind.__name__: kind
    for kind in (
        InputChangedError,
        InternalError,
        MissingObjectError,
        StorageError,
        UserError,
        VerificationError,
    )
}
"""Errors that a fetcher may answer with."""


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


class ListFolder(msgspec.Struct, frozen=True, kw_only=True, tag="list"):
    """Name the objects below a folder."""

    number: int
    prefix: str


Request = FetchBlocks | FetchFile | ListFolder


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the store that everything else is about."""

    location: str


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error, as another process can raise it again."""

    kind: str
    what: str
    where: str
    why: str
    hint: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What an exception says."""
        if isinstance(error, TokenmillError):
            kind = next(each.__name__ for each in type(error).__mro__ if each.__name__ in KINDS)
            return cls(
                kind=kind, what=error.what, where=error.where, why=error.why, hint=error.hint
            )
        why = f"{type(error).__name__}: {error}"
        hint = "please report this with the steps that led to it"
        return cls(
            kind="InternalError", what="reading from a store failed", where="", why=why, hint=hint
        )

    def error(self) -> TokenmillError:
        """The error to raise."""
        kind = KINDS[self.kind]
        return kind(self.what, where=self.where, why=self.why, hint=self.hint)


class Answer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request ended."""

    number: int
    failure: Failure | None = None
    names: list[str] = []
    """Of objects that were listed."""
