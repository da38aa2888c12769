"""The encoding of a stream's portions: each rank does all of it, or ranks share the work.

Packing needs the length of every document, and a sampled length is known only by encoding. So a
rank cannot leave out what is in rows of other ranks. But it can get their ids: each rank encodes
every n-th portion, and sends its ids to the others. Ids depend on seed, epoch and document only, so
that all ranks have the same as if each had encoded everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.text.pieces import DocumentEncoder, Ids
from tokenmill.load.text.state import Cursor

Exchange = Callable[[Any], list[Any]]
"""Sends a value to all ranks, and returns those of all, by rank. All ranks call it together."""
Encoded = tuple[Ids, Int64Array]
"""The ids of a portion, and the offsets of its documents, shape (num_documents + 1,)."""


@dataclass(frozen=True, slots=True)
class PortionEncoder:
    """Encodes portions of documents."""

    encoder: DocumentEncoder
    identity: str
    """Of the stream; ranks that share the work must have the same."""
    rank: int
    world_size: int
    exchange: Exchange | None = None

    @property
    def at_once(self) -> int:
        """The number of portions to encode at once."""
        return 1 if self.exchange is None else self.world_size

    def encode(self, cursors: Sequence[Cursor], texts: Sequence[Sequence[str]]) -> list[Encoded]:
        """Return the ids of up to `at_once` portions that follow each other.

        Raises:
            UserError: the ranks are at different places, or read other data.
        """
        if self.exchange is None:
            return [self._own(at, each) for at, each in zip(cursors, texts, strict=True)]
        own = None
        if self.rank < len(cursors):
            own = self._own(cursors[self.rank], texts[self.rank])
        place = f"document {cursors[0].ordinal} of epoch {cursors[0].epoch}"
        sent = self.exchange((self.identity, place, own))
        for rank, (identity, there, _) in enumerate(sent):
            if (identity, there) != (self.identity, place):
                other = (
                    "" if identity == self.identity else ", of other texts or with other options"
                )
                raise UserError(
                    "ranks share the encoding of a text stream, but are not at the same place",
                    why=f"rank {rank} is at {there}{other}; rank {self.rank} is at {place}",
                    hint="use the same options on all ranks, and load the same state on all",
                )
        return [found for _, _, found in sent[: len(cursors)]]

    def _own(self, at: Cursor, texts: Sequence[str]) -> Encoded:
        return self.encoder.encode(texts, at.epoch, at.ordinal)
