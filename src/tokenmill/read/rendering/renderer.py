"""What turns a record into texts.

A description of it, such as a template, is part of the fields that a format is asked for; it goes
to worker processes and into the identity of a build. A renderer is made of it once, where records
are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tokenmill.errors import UserError

if TYPE_CHECKING:  # a process that renders does without numpy
    from tokenmill.records import CharSpans


class RenderedText(NamedTuple):
    """One document of a record."""

    text: str
    no_loss: CharSpans | None = None
    """Character ranges without loss; None if the rendering says nothing about loss."""
    special_strings: int | None = None
    """Special tokens in what it is made of; None if the text itself tells."""


class UnfitRecordError(ValueError):
    """A record cannot be rendered: it is set aside with a reason, a short name, and a detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class FailedRenderingError(UserError):
    """Code of the user's failed on a record, which is then not set aside: the build ends."""

    position = 0
    """Of the record in its source."""


class Renderer(Protocol):
    """Renders records, one at a time and always in the same way."""

    def render(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        """The texts of a record, in order; none if it is left out, which is counted as empty.

        `record` has the fields that the description asks for; a field that a record does not have
        is missing, a null is None.

        Raises:
            UnfitRecordError: the record is set aside.
            FailedRenderingError: the build ends.
        """


class Rendering(Protocol):
    """The description of a renderer: a frozen msgspec struct with a tag."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Names or dotted paths of what is read of each record; None for the whole record."""

    @property
    def optional(self) -> frozenset[str]:
        """Those of them that the first records, or the schema of a file, may be without."""

    @property
    def has_no_loss(self) -> bool:
        """Whether its texts come with ranges that carry no loss: all of them, or none."""

    def renderer(self) -> Renderer:
        """What renders records.

        Raises:
            UserError: the description cannot be used.
        """
