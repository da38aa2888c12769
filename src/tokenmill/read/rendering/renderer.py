"""The interfaces of renderings, which turn records into texts.

A rendering, such as a template, is a description that is part of the fields. It is sent to worker
processes and is part of the identity of a build. A process that reads records creates a renderer
from it once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.read.values import column_value, missing_field, walk


class RenderedText(msgspec.Struct, frozen=True, tag="text"):
    """One document of a record."""

    text: str
    no_loss: list[tuple[int, int]] | None = None
    """Character ranges without loss; None if the rendering says nothing about loss."""
    special_strings: int | None = None
    """Number of special tokens in the record; None to count them in the text."""


class FailedRenderingError(UserError):
    """The user's code failed on a record. This stops the build instead of rejecting the record."""

    position = 0
    """Position of the record in its source."""


Renderer = Callable[[Mapping[str, Any]], Sequence[RenderedText]]
"""Returns the texts of a record, in order, deterministically. One without texts counts as empty.

The record has the requested fields. Fields that it lacks are missing; null is None.

Raises:
    UnfitRecordError: the record is rejected.
    FailedRenderingError: the user's code failed, which stops the build.
"""


class Rendering(msgspec.Struct, frozen=True):
    """The description of a renderer. Subclasses have a tag."""

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Names or dotted paths of the fields to read; None for the whole record."""
        return None

    @property
    def optional(self) -> frozenset[str]:
        """Fields that may be missing from the first records or the schema of a file."""
        return frozenset()

    @property
    def has_no_loss(self) -> bool:
        """Whether all texts come with ranges without loss; otherwise none do."""
        return False

    def renderer(self) -> Renderer:
        """Return a renderer.

        Raises:
            UserError: the description is not valid.
        """
        raise NotImplementedError


class TextTemplate(Rendering, frozen=True, tag="template"):
    """A template with field names or dotted paths in braces; {{ and }} are literal braces."""

    template: str

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in the template, in order."""
        return tuple(dict.fromkeys(name for _, name in self.parts() if name is not None))

    def parts(self) -> list[tuple[str, str | None]]:
        """Literal texts, each with the field after it.

        Raises:
            UserError: the template has no field, or a brace is not closed or contains another text.
        """
        try:
            parts = list(string.Formatter().parse(self.template))
        except ValueError as error:
            why = f"{error}; write {{{{ for a literal brace"
            raise UserError(
                "cannot read the text template", where=self.template, why=why
            ) from error
        for _, name, form, conversion in parts:
            if name == "" or form or conversion:
                why = "braces may only contain the name of a field"
                raise UserError("cannot read the text template", where=self.template, why=why)
        if all(name is None for _, name, _, _ in parts):
            why = "it contains no field, so all texts would be the same"
            raise UserError("cannot read the text template", where=self.template, why=why)
        return [(literal, name) for literal, name, _, _ in parts]

    def renderer(self) -> Renderer:
        """Return a renderer that fills in the template; values but strings are written as JSON.

        It rejects records in which a field is missing or null.
        """
        parts = [(text, name and name.split(".")) for text, name in self.parts()]

        def render(record: Mapping[str, Any]) -> Sequence[RenderedText]:
            written: list[str] = []
            for literal, path in parts:
                written.append(literal)
                if path:
                    value = column_value(walk(record, path))
                    if value is None:
                        raise missing_field(".".join(path))
                    written.append(value)
            return [RenderedText("".join(written))]

        return render
