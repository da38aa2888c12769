"""The interfaces of renderings, which turn records into texts.

A rendering, such as a template, is a description that is part of the fields. It is sent to worker
processes and is part of the identity of a build. A process that reads records creates a renderer
from it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tokenmill.core.errors import UserError

if TYPE_CHECKING:  # the rendering process does not load numpy
    from tokenmill.core.records import CharSpans


class RenderedText(NamedTuple):
    """One document of a record."""

    text: str
    no_loss: CharSpans | None = None
    """Character ranges without loss; None if the rendering says nothing about loss."""
    special_strings: int | None = None
    """Number of special tokens in the record; None to count them in the text."""


class FailedRenderingError(UserError):
    """The user's code failed on a record. This stops the build instead of rejecting the record."""

    position = 0
    """Position of the record in its source."""


class Renderer(Protocol):
    """Renders records one at a time and deterministically."""

    def render(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        """Return the texts of a record, in order. A record without texts counts as empty.

        `record` has the requested fields. Fields that a record lacks are missing; null is None.

        Raises:
            UnfitRecordError: the record is rejected.
            FailedRenderingError: the user's code failed, which stops the build.
        """


class Rendering(Protocol):
    """The description of a renderer: a frozen msgspec struct with a tag."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Names or dotted paths of the fields to read; None for the whole record."""

    @property
    def optional(self) -> frozenset[str]:
        """Fields that may be missing from the first records or the schema of a file."""

    @property
    def has_no_loss(self) -> bool:
        """Whether all texts come with ranges without loss; otherwise none do."""

    def renderer(self) -> Renderer:
        """Return a renderer.

        Raises:
            UserError: the description is not valid.
        """
