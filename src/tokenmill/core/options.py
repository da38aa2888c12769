r"""Options as the fields of structs, which state everything about an option once.

    workers: Annotated[Positive | None, about("worker processes")] = None

The flag and its help (`cli/parser.py`), the key of a recipe, the keyword argument and the checks
below follow from the field. The `extra` of a Meta holds what a type cannot say:

    unit      how a text is read: "bytes" (2GB), "tokens" (4k), "quantity" (1.3B); "escaped": a
              shell cannot write line ends, so that its flag takes them as \n
    reason    follows the valid values in a message
    names     yields valid names that are known late, in the order of what it takes to know them
    known     names that a shell completes, if the type does not list them
    metavar, nargs, positional     how the command line shows the option
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import nearest
from tokenmill.core.values import (
    UNITS,
    bare,
    is_literal,
    is_struct,
    kinds_of,
    members_of,
    metas_of,
    parse_share,
    valid_values,
)

S = TypeVar("S", bound=msgspec.Struct)
MISSING = "is missing"
UNKNOWN = "unknown option"

Overwrite = bool | Literal["first"]
"""Whether to replace an old output: once the new one is complete, or by removing it first."""
Naming = Callable[[str], str]
"""Returns how a user writes an option, for example its flag, from its path."""


class Ref(str):
    """The path of an option in the text of a problem, such as "pack.packing"."""


@dataclass(frozen=True, slots=True, init=False)
class Problem:
    """What is wrong with an option."""

    option: str
    """The path of the option: its name after that of its section, such as "pack.packing"."""
    text: str
    """What is wrong; `{}` stands for the next of the values, as in str.format."""
    values: tuple[object, ...]
    """Values in the text. A Ref is shown as the user writes that option."""

    def __init__(self, option: str, text: str, *values: object) -> None:
        for name, value in (("option", option), ("text", text), ("values", values)):
            object.__setattr__(self, name, value)

    def said(self, name: Naming) -> str:
        """The problem in words."""
        values = (name(each) if isinstance(each, Ref) else each for each in self.values)
        return f"{name(self.option)}: {self.text.format(*values)}"

    def __str__(self) -> str:
        return self.said(str)


def missing(option: str, rest: str = "") -> Problem:
    """The problem that an option is missing."""
    return Problem(option, f"{MISSING}{rest}")


def unknown(option: str, meant: str = "") -> Problem:
    """The problem that there is no such option; `meant` is the path of the nearest one."""
    if not meant:
        return Problem(option, UNKNOWN)
    return Problem(option, UNKNOWN + "; did you mean {}?", Ref(meant))


class OptionError(UserError):
    """One or several options are wrong; the message lists all problems."""

    def __init__(
        self,
        subject: str,
        problems: Sequence[Problem],
        *,
        where: str = "",
        hint: str = "",
        name: Naming = str,
    ) -> None:
        self.subject, self.problems = subject, tuple(problems)
        number = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
        why = "\n       ".join(problem.said(name) for problem in problems)
        super().__init__(f"{subject} has {number}", where=where, why=why, hint=hint)

    def renamed(self, name: Naming) -> OptionError:
        """The same error with other names of the options."""
        return OptionError(self.subject, self.problems, where=self.where, hint=self.hint, name=name)


def about(description: str, example: str = "", **extra: Any) -> Meta:
    """Describe an option in its annotation; for `extra`, see the top of this module."""
    return Meta(
        description=description,
        examples=[example] if example else None,
        extra=extra or None,
    )


@dataclass(frozen=True, slots=True)
class Option:
    """One field of a struct of options."""

    name: str
    hint: Any
    """The type with all its annotations."""
    kinds: tuple[Any, ...]
    """The types that a value may have, without annotations and without None."""
    default: Any
    is_required: bool
    description: str
    examples: list[str]
    extra: dict[str, Any]

    @property
    def kind(self) -> Any:
        """The first type that a value may have."""
        return self.kinds[0]

    @property
    def choices(self) -> tuple[str, ...]:
        """The valid names as the type has them; empty if the option is not a choice."""
        names = [name for kind in self.kinds if is_literal(kind) for name in typing.get_args(kind)]
        return (*names, "true", "false") if names and bool in self.kinds else tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The valid names of a value or of its items; empty if the option is not a choice."""
        if "names" in self.extra:
            return tuple(self.extra["names"]())
        return typing.get_args(self.item) if is_literal(self.item) else self.choices

    def accepts(self, name: str) -> bool:
        """Whether a name is a valid choice; True if the option is not a choice."""
        if "names" in self.extra:
            return name.rpartition("=")[2] in self.extra["names"]()
        return not self.names or name in self.names

    @property
    def item(self) -> Any:
        """The type of the items of a list or tuple; None for other options."""
        is_several = typing.get_origin(self.kind) in (list, tuple)
        return bare(typing.get_args(self.kind)[0]) if is_several else None


@functools.cache
def options_of(kind: type[msgspec.Struct]) -> dict[str, Option]:
    """The options that the fields of a struct describe, by name."""
    hints = typing.get_type_hints(kind, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        metas = list(metas_of(hint))
        extra = {name: value for meta in metas for name, value in (meta.extra or {}).items()}
        found[field.name] = Option(
            name=field.name,
            hint=hint,
            kinds=tuple(kinds_of(hint)),
            default=field.default,
            is_required=field.required,
            description=next((meta.description for meta in metas if meta.description), ""),
            examples=next((meta.examples for meta in metas if meta.examples), []),
            extra=extra,
        )
    return found


def make_options(
    kind: type[S],
    values: Mapping[str, Any],
    subject: str,
    *,
    path: str = "",
    where: str = "",
    hint: str = "",
) -> S:
    """Make a struct of options from values as users write them.

    Args:
        kind: the struct.
        values: values by name. Sections, which are structs themselves, are mappings.
        subject: what the options describe, for messages: "the recipe".
        path: the section that the struct is.
        where: the file with the options.
        hint: what to do about a problem.

    Raises:
        OptionError: at least one option is wrong. The error has all problems.
    """
    problems: list[Problem] = []
    made = convert(kind, values, path, problems)
    if made is None:
        raise OptionError(subject, problems, where=where, hint=hint)
    return made


def make_structs(
    kinds: Sequence[type[msgspec.Struct]], values: Mapping[str, Any], subject: str, hint: str = ""
) -> tuple[Any, ...]:
    """Make several structs from the values of all their fields; each has those that it knows.

    Raises:
        OptionError: as for `make_options`.
    """
    known = [name for kind in kinds for name in options_of(kind)]
    problems = [unknown(name, nearest(name, known)) for name in values if name not in known]
    made = []
    for kind in kinds:
        own = {name: values[name] for name in options_of(kind) if name in values}
        made.append(convert(kind, own, "", problems))
    if problems:
        raise OptionError(subject, problems, hint=hint)
    return tuple(made)


def convert(
    kind: type[S], values: Mapping[str, Any], path: str, problems: list[Problem]
) -> S | None:
    """Make a struct as `make_options` does; if it cannot be made, add the problems."""
    known = options_of(kind)
    prefix = f"{path}." if path else ""
    before = len(problems)
    for name in values:
        if name not in known:
            problems.append(unknown(f"{prefix}{name}", _nearest_path(str(name), known, prefix)))
    found = {
        name: _checked(known[name], value, f"{prefix}{name}", problems)
        for name, value in values.items()
        if name in known
    }
    for name, option in known.items():
        if option.is_required and values.get(name, "") == "":
            problems.append(missing(f"{prefix}{name}"))
    return kind(**found) if len(problems) == before else None


def _nearest_path(name: str, known: Mapping[str, Option], prefix: str) -> str:
    """The path of the option that is most likely meant, also if it is in a section."""
    if close := nearest(name, known):
        return f"{prefix}{close}"
    sections = {
        each: options_of(option.kind) for each, option in known.items() if is_struct(option.kind)
    }
    inner = {each: f"{section}.{each}" for section in sections for each in sections[section]}
    return inner.get(nearest(name, inner), "")


def _checked(option: Option, value: Any, path: str, problems: list[Problem]) -> Any:
    """Convert a value to the type of its option, or add a problem."""
    if is_struct(option.kind) and not (value is None and type(None) in members_of(option.hint)):
        if isinstance(value, msgspec.Struct):  # msgspec does not check values in constructors
            value = msgspec.to_builtins(value)
        if isinstance(value, Mapping) or value is None:
            return convert(option.kind, value or {}, path, problems)
        problems.append(Problem(path, "must be a section with options"))
        return None
    if value is None and option.default is msgspec.UNSET:
        return msgspec.UNSET
    try:
        read = _read(value, option)
        for name in read if isinstance(read, list) else [read]:
            _require_choice(option, name)
        return msgspec.convert(read, option.hint)
    except ValueError as error:  # as are the errors of msgspec
        allowed = ""
        if isinstance(error, msgspec.ValidationError) or not str(error):
            allowed = valid_values(option.hint)
        reason = f"; {option.extra['reason']}" if "reason" in option.extra else ""
        why = f"must be {allowed}{reason}" if allowed else str(error)
        if "%" in allowed and re.fullmatch(r"[1-9]\d?(\.\d+)?", str(value)):
            why += f"; did you mean {value}%?"
        if option.item and str in option.kinds and isinstance(value, list) and len(value) == 1:
            value = value[0]
        problems.append(Problem(path, "got {!r}; {}", value, why))
        return None


def _require_choice(option: Option, name: Any) -> None:
    """Raise a ValueError if a name is none of the choices of an option, if it has any."""
    if isinstance(name, str) and not option.accepts(name):
        close = nearest(name.rpartition("=")[2], option.names)
        hint = f"; did you mean {close}?" if close else ""
        some = "one or several" if is_literal(option.item) else "one"
        raise ValueError(f"must be {some} of {', '.join(option.names)}{hint}")


def _read(value: Any, option: Option) -> Any:
    """Read a value, and each item of several, as its type: users may write texts."""
    item, unit = option.item, option.extra.get("unit", "")
    if item is None:
        if value in ("true", "false") and bool in option.kinds[1:]:
            return value == "true"
        if type(value) is int and int in option.kinds:  # a token may be given by text or by id
            return value
        return _read_item(value, option.kind, unit)
    if type(value) is int and str in option.kinds:
        value = str(value)
    if isinstance(value, (str, Path)):
        is_list = typing.get_origin(option.kind) is list
        value = [value] if is_list or isinstance(value, Path) else value.split(",")
    if isinstance(value, (list, tuple)):
        return [_read_item(each, item, unit) for each in value]
    return value


def _read_item(value: Any, kind: Any, unit: str) -> Any:
    if isinstance(value, Path) or (type(value) is int and kind is str):
        return str(value)
    if not isinstance(value, str):
        return value
    if unit in UNITS:
        return UNITS[unit](value)
    if kind is float:
        return parse_share(value)
    if kind is int:
        try:
            return int(value)
        except ValueError:
            raise ValueError from None  # says nothing: the valid values are told
    return value
