"""The state of a text stream: its parts, its books, and how it is known again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tokenmill.errors import DataError, UserError
from tokenmill.records import DocumentBatch

STATE_VERSION = 1
HOPELESS = 1000
"""Bad records before the first good one, after which nothing more is read."""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class StreamCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has been read, over all epochs."""

    records: Number = 0
    """Documents, empty ones and rejected records."""
    documents: Number = 0
    """Those that were packed."""
    empty: Number = 0
    """Those without a token."""
    tokens: Number = 0
    """Tokens of the documents, prefix and EOS included."""
    rejected: dict[str, Number] = {}
    """Records that could not be read, by reason."""

    @property
    def num_rejected(self) -> int:
        """Records that could not be read."""
        return sum(self.rejected.values())

    def plus(self, batch: DocumentBatch, documents: int, tokens: int) -> StreamCounts:
        """With a batch, of which `documents` have `tokens`.

        Raises:
            DataError: many records were read and none of them is good.
        """
        rejected = dict(self.rejected)
        for item in batch.rejected:
            rejected[item.reason] = rejected.get(item.reason, 0) + 1
        found = StreamCounts(
            records=self.records + len(batch.texts) - batch.num_further + len(batch.rejected),
            documents=self.documents + documents,
            empty=self.empty + len(batch.texts) - documents,
            tokens=self.tokens + tokens,
            rejected=rejected,
        )
        if not found.documents and found.num_rejected >= HOPELESS:
            found.judge(0.0)
        return found

    def judge(self, max_bad: float) -> None:
        """Raise a DataError where more records are bad than allowed, or there is no document."""
        if self.num_rejected > max_bad * max(self.records, 1):
            raise DataError(
                f"{self.num_rejected} of {self.records} records could not be read",
                why=f"{_listed(self.rejected)}; the limit is {max_bad:.4%}",
                hint="`tokenmill build` lists them; fix them, name the right text_field, or "
                "raise max_bad",
            )
        if not self.documents:
            raise DataError("nothing to read", why="no input holds a document with text")


def _listed(rejected: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))


class Cursor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next portion of documents: where it is read, and how its documents are numbered."""

    epoch: Number = 0
    extent: Number = 0
    batch: Number = 0
    ordinal: Number = 0
    """Of its first document in the epoch; decides how that is sampled."""
    number: Number = 0
    """Of its first document, counted over all epochs; for the packer."""


class DocumentOrigin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a document was read that the packer holds pieces of."""

    number: Number
    epoch: Number
    ordinal: Number
    extent: Number
    batch: Number
    index: Number
    """In the batch."""


class Waypoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A place between two portions of documents, and everything that the future depends on."""

    packer: dict[str, Any]
    cursor: Cursor = Cursor()
    origins: list[DocumentOrigin] = []
    """Of the documents that the packer holds pieces of."""
    counts: StreamCounts = StreamCounts()


class StreamState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a stream stands."""

    version: int = STATE_VERSION
    identity: dict[str, Any]
    """Sources, tokenizer and options; see `differences`."""
    before: Waypoint
    """Where the portion begins that the last batch was made of."""
    rows_given: Number
    """Rows of that portion that have been given out."""


def checked_state(state: dict[str, Any], identity: dict[str, Any]) -> StreamState:
    """A state, known to be one of a stream with this identity.

    Raises:
        UserError: it is not; the message names every difference.
    """
    try:
        found = msgspec.convert(state, StreamState)
    except msgspec.ValidationError as error:
        raise UserError("not the state of a text stream", why=str(error)) from error
    if found.version != STATE_VERSION:
        why = f"its version is {found.version}; this version reads {STATE_VERSION}"
        raise UserError("the state was saved by another version of tokenmill", why=why)
    why = "\n       ".join(_differences(found.identity, identity, ""))
    if why:
        hint = "open the stream with the same options, or start again without the state"
        raise UserError("the state belongs to another stream", why=why, hint=hint)
    return found


def _differences(there: Any, here: Any, name: str) -> Iterator[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        for key in here | there:
            inner = f"{name}.{key}" if name else str(key)
            yield from _differences(there.get(key), here.get(key), inner)
    elif there != here:
        yield f"{name} is {there!r} there and {here!r} here"
