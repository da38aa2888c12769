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


def default_of(choice: Choice, otherwise: str) -> str:
    """Return the value for inputs that match no pattern."""
    if isinstance(choice, str):
        return choice
    return next((each for each in choice if "=" not in each), otherwise)


def patterns_of(choice: Choice) -> list[tuple[str, str]]:
    """Return the (glob, value) of each pattern. A glob may contain "=", a value may not."""
    items = () if isinstance(choice, str) else choice
    return [(glob, value) for glob, equals, value in (i.rpartition("=") for i in items) if equals]


def simplest(choice: Choice) -> Choice:
    """Return a choice without patterns as a plain value, which datasets have always stored."""
    is_plain = not isinstance(choice, str) and len(choice) == 1 and "=" not in choice[0]
    return choice[0] if is_plain else choice


@dataclass(frozen=True, slots=True)
class PerInput:
    """The chosen formats and text fields."""

    format: Choice = AUTO
    text_field: Choice = "text"

    def applied(self, source: Source) -> Source:
        """Return a source with the format and the text field that were chosen for it."""
        text_field = _value_for(source, self.text_field, "")
        chosen = _value_for(source, self.format, default_of(self.format, AUTO))
        if (chosen, text_field) == (AUTO, ""):  # saves a copy for each of a million files
            return source
        return replace(source, chosen_format=chosen, text_field=text_field)

    def require_matches(self, sources: Sequence[Source]) -> None:
        """Raise a UserError if a pattern matches no source."""
        for flag, choice in (("--text-field", self.text_field), ("--format", self.format)):
            for glob, value in patterns_of(choice):
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


def _value_for(source: Source, choice: Choice, otherwise: str) -> str:
    """Return the value of the last pattern that matches a source."""
    values = (value for glob, value in reversed(patterns_of(choice)) if _is_named(source, glob))
    return next(values, otherwise)


def _is_named(source: Source, glob: str) -> bool:
    """Return whether a glob matches a source, or a folder that it is in.

    The glob is the end of a path from the input's folder on; one of several parts may also begin in
    the working folder or at a root. Folders above the input are not looked at.
    """
    if glob in (source.name, source.location):
        return True  # also with characters that a glob reads otherwise
    location, pattern = (
        _parts(path if "://" in path else str(Path.cwd() / path))
        for path in (source.location, glob)
    )
    name = _parts(source.name)
    folder = location[-len(name) - 1 : -len(name)]  # of the input
    if matches([*folder, *name], ["**", *_parts(glob), "**"]):
        return True
    return len(_parts(glob)) > 1 and matches(location, [*pattern, "**"])


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
