"""Formats and text fields that differ between inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.globs import matches
from tokenmill.core.suggestions import nearest
from tokenmill.read.source import AUTO, Source

Choice = str | Sequence[str]
"""A value for all inputs; or several: at most one NAME, and GLOB=NAME for the inputs that match."""
MAX_SHOWN = 8
MAX_COMPARED = 1000
OTHERWISE = "name a file, a folder or a glob, such as 'forum/*.csv'"


def parted(choice: Choice) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the names for all inputs, and the (glob, name) of each pattern.

    A glob may contain "=", a name of several may not.
    """
    if isinstance(choice, str):
        return [choice], []
    parts = [each.rpartition("=") for each in choice]
    names = [name for _, equals, name in parts if not equals]
    return names, [(glob, name) for glob, equals, name in parts if equals]


@dataclass(frozen=True, slots=True)
class PerInput:
    """The chosen formats and text fields."""

    format: Choice = AUTO
    text_field: Choice = "text"

    @property
    def text(self) -> str:
        """The text field of inputs that match no pattern."""
        return next(iter(parted(self.text_field)[0]), "text")

    def applied(self, source: Source) -> Source:
        """Return a source with the format and the text field that were chosen for it."""
        if self.format == AUTO and isinstance(self.text_field, str):
            return source  # saves a copy for each of a million files
        formats, patterns = parted(self.format)
        chosen = _value_for(source, patterns, next(iter(formats), AUTO))
        text_field = _value_for(source, parted(self.text_field)[1], "")
        return replace(source, chosen_format=chosen, text_field=text_field)

    def require_matches(self, sources: Sequence[Source]) -> None:
        """Raise a UserError if a pattern matches no source."""
        for flag, choice in (("--text-field", self.text_field), ("--format", self.format)):
            for glob, value in parted(choice)[1]:
                if not any(_is_named(source, glob) for source in sources):
                    names = [source.name for source in sources]
                    more = f" and {len(names) - MAX_SHOWN:,} more" * (len(names) > MAX_SHOWN)
                    close = nearest(glob, names[:MAX_COMPARED])
                    hint = f"did you mean {flag} {close}={value}?" if close else OTHERWISE
                    raise UserError(
                        f"{flag} {glob}={value} matches no input",
                        why=f"the inputs are {', '.join(names[:MAX_SHOWN])}{more}",
                        hint=hint,
                    )


ANY_INPUT = PerInput()
"""The defaults: formats are detected, and the text field is that of the run."""


def _value_for(source: Source, patterns: Sequence[tuple[str, str]], otherwise: str) -> str:
    """Return the value of the last pattern that matches a source."""
    return next((value for glob, value in reversed(patterns) if _is_named(source, glob)), otherwise)


def _is_named(source: Source, glob: str) -> bool:
    """Return whether a glob matches a source, or a folder that it is in.

    The glob is the end of a path from the input's folder on; one of several parts may also begin in
    the working folder or at a root. Folders above the input are not looked at.
    """
    if glob in (source.name, source.location):
        return True  # also with characters that a glob reads otherwise
    name, pattern, here = _parts(source.name), _parts(glob), f"{Path.cwd()}/"
    path, whole = (
        _parts(each if each.startswith("/") or "://" in each else here + each)
        for each in (source.location, glob)
    )
    if matches(path[-len(name) - 1 :], ["**", *pattern, "**"]):
        return True
    return len(pattern) > 1 and matches(path, [*whole, "**"])


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
