"""Descriptions of the valid values of an option, derived from the type of its field."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

_PLACE = re.compile(r" - at `\$\.?(.*)`$")


def refusal(error: msgspec.ValidationError, values: Mapping[str, Any], kind: type[Any]) -> str:
    """Return a message with the refused option of a struct, its value and the valid values."""
    found = _PLACE.search(str(error))
    place = found[1].split("[")[0] if found else ""
    value: Any = values
    hint: Any = kind
    for name in filter(None, place.split(".")):
        hints = _hints(hint)
        if name not in hints:
            return str(error)
        hint = hints[name]
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    allowed = valid_values(hint) if place else ""
    return f"{place}: got {value!r}; must be {allowed}" if allowed else str(error)


def valid_values(kind: Any) -> str:
    """Describe the valid values of a type; "" if there is nothing useful to say."""
    text = _described(kind, [])
    example = next(filter(None, (_example(each) for each in _metas(kind))), "")
    return f"{text}, e.g. {example}" if text and example else text


def _described(kind: Any, metas: list[msgspec.Meta]) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        own = [each for each in arguments[1:] if isinstance(each, msgspec.Meta)]
        return _described(arguments[0], [*own, *metas])
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (typing.Union, types.UnionType):
        nothing = (type(None), msgspec.UnsetType)
        parts = [_described(each, metas) for each in arguments if each not in nothing]
        text = " or ".join(parts) if all(parts) else ""
        return f"{text}, or none" if text and type(None) in arguments else text
    if origin in (list, tuple):
        return _list_of(arguments[0], metas)
    if kind in (int, float):
        return _number(kind, metas)
    return {bool: "true or false", str: "text"}.get(kind, "")


def _list_of(kind: Any, metas: list[msgspec.Meta]) -> str:
    choices = typing.get_args(_bare(kind))
    if typing.get_origin(_bare(kind)) is Literal:
        return f"one or several of {', '.join(map(str, choices))}"
    some = "at least one" if any(each.min_length for each in metas) else ""
    return f"a list of {some} text{'' if some else 's'}".replace("  ", " ") if kind is str else ""


def _number(kind: type, metas: list[msgspec.Meta]) -> str:
    what = "a whole number" if kind is int else "a number"
    bounds = {
        name: getattr(each, name)
        for each in metas
        for name in ("ge", "gt", "le", "lt")
        if getattr(each, name) is not None
    }
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    limits = " and ".join(f"{words[name]} {bounds[name]}" for name in words if name in bounds)
    return f"{what}, {limits}" if limits else what


def _hints(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a struct; empty for anything else."""
    for each in (_bare(kind), *typing.get_args(_bare(kind))):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            return typing.get_type_hints(each, include_extras=True)
    return {}


def _bare(kind: Any) -> Any:
    while typing.get_origin(kind) is Annotated:
        kind = typing.get_args(kind)[0]
    return kind


def _metas(kind: Any) -> list[msgspec.Meta]:
    metas = getattr(kind, "__metadata__", ())
    return [each for each in metas if isinstance(each, msgspec.Meta)]


def _example(meta: msgspec.Meta) -> str:
    return (meta.description or "").partition("e.g. ")[2].replace("%%", "%")
