"""The state of a text stream: its position, its counts, and the identity of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tokenmill.core.errors import DataError
from tokenmill.core.records import DocumentBatch
from tokenmill.load.steps.state import decoded, refuse_another

STATE_VERSION = 1
HOPELESS = 1000
"""Number of bad records after which reading stops if there was no good one."""

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class StreamCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has been read, over all epochs."""

    records: Number = 0
    """Number of records: documents, empty documents and rejected records."""
    documents: Number = 0
    """Number of packed documents."""
    empty: Number = 0
    """Number of documents without tokens."""
    tokens: Number = 0
    """Number of tokens in the documents, including prefix and EOS."""
    rejected: dict[str, Number] = {}
    """Number of records that could not be read, by reason."""

    @property
    def num_rejected(self) -> int:
        """Number of records that could not be read."""
        return sum(self.rejected.values())

    def plus(self, batch: DocumentBatch, documents: int, tokens: int) -> StreamCounts:
        """Return the counts with a batch added: `documents` of it have `tokens` in total.

        Raises:
            DataError: many records were read, and none of them is good.
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
        """Raise a DataError if too many records are bad or there is no document."""
        if self.num_rejected > max_bad * max(self.records, 1):
            raise DataError(
                f"{self.num_rejected} of {self.records} records could not be read",
                why=f"{_listed(self.rejected)}; the limit is {max_bad:.4%}",
                hint="list them with `tokenmill build`; then fix them, set text_field, or raise "
                "max_bad",
            )
        if not self.documents:
            raise DataError("nothing to read", why="no input contains a document with text")


def _listed(rejected: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))


class Cursor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place of the next portion of documents, and the numbers of its documents."""

    epoch: Number = 0
    extent: Number = 0
    batch: Number = 0
    ordinal: Number = 0
    """Number of its first document in the epoch; sampling depends on it."""
    number: Number = 0
    """Number of its first document over all epochs; the packer uses it."""


class DocumentOrigin(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The place of a document that the packer still has pieces of."""

    number: Number
    epoch: Number
    ordinal: Number
    extent: Number
    batch: Number
    index: Number
    """Position in the batch."""


class Waypoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A point between two portions of documents, with everything that later rows depend on."""

    packer: dict[str, Any]
    cursor: Cursor = Cursor()
    origins: list[DocumentOrigin] = []
    """Places of the documents that the packer still has pieces of."""
    counts: StreamCounts = StreamCounts()


class StreamState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The position of a text stream."""

    version: int = STATE_VERSION
    identity: dict[str, dict[str, Any]]
    """Identity of the sources, the tokenizer and the options."""
    before: Waypoint
    """The point before the portion that the last batch ended in."""
    rows_given: Number
    """Number of rows of that portion that have been returned."""


def checked_state(state: dict[str, Any], identity: dict[str, dict[str, Any]]) -> StreamState:
    """Return a state after checking that it belongs to a stream with this identity.

    Raises:
        UserError: it does not. The message lists every difference.
    """
    found = decoded(state, StreamState, "a text stream")
    hint = "open the stream with the same options, or start again without the state"
    there, here = _settings(found.version, found.identity), _settings(STATE_VERSION, identity)
    refuse_another("stream", there, here, hint)
    return found


def _settings(version: int, identity: dict[str, dict[str, Any]]) -> dict[str, Any]:
    parts = ((part, name, value) for part in identity for name, value in identity[part].items())
    return {"version": version, **{f"{part}.{name}": value for part, name, value in parts}}
