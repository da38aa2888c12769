"""Text templates, which combine several fields such as a title and a body."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.read.rendering.renderer import RenderedText, Renderer
from tokenmill.read.values import column_value, missing_field, walk


class TextTemplate(msgspec.Struct, frozen=True, tag="template"):
    """A template with field names or dotted paths in braces; {{ and }} are literal braces."""

    template: str

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields in the template, in order."""
        return tuple(dict.fromkeys(name for _, name in self.parts() if name is not None))

    @property
    def optional(self) -> frozenset[str]:
        """No fields are optional."""
        return frozenset()

    @property
    def has_no_loss(self) -> bool:
        """False, because a loss range would refer to the characters of one field."""
        return False

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
        """Return a renderer that fills in the template."""
        return _TemplateRenderer(self)


class _TemplateRenderer:
    """Fills in a template; numbers and other values are written as JSON."""

    def __init__(self, template: TextTemplate) -> None:
        self._parts = [(text, name and name.split(".")) for text, name in template.parts()]

    def render(self, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        """Return one text.

        Raises:
            UnfitRecordError: a field is missing or null.
        """
        written: list[str] = []
        for literal, path in self._parts:
            written.append(literal)
            if path:
                value = column_value(walk(record, path))
                if value is None:
                    raise missing_field(".".join(path))
                written.append(value)
        return [RenderedText("".join(written))]
