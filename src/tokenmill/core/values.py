"""How users write values, how messages describe the valid ones, and how they show numbers."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from tokenmill.core.errors import one_line

N = TypeVar("N", int, float)
NOTHING = (type(None), msgspec.UnsetType)


def parse_bytes(value: str) -> int:
    """Return a size such as "2GB", "512 MiB" or "1000" in bytes; a ValueError if it is none."""
    units = {name: 1000**power for power, name in enumerate("KMGT", 1)}
    units |= {f"{name}I": 1024**power for power, name in enumerate("KMGT", 1)}
    text, rule = value.strip().upper().removesuffix("B"), "a size such as 2GB or 512MiB"
    return _parsed(text, units, rule, lambda number, unit: int(float(number) * unit))


def parse_length(value: str) -> int:
    """Return the number of tokens in "4096", or in "4k" for 4,096; a ValueError if it is none."""
    text, rule = value.strip().lower(), "a whole number such as 4096 or 4k"
    return _parsed(text, {"k": 1024}, rule, lambda number, unit: int(number) * unit)


def parse_quantity(value: str) -> float:
    """Return a number such as "1.3B", "350M" or "1e21"; a ValueError if it is none."""
    units = {name: 1000**power for power, name in enumerate("kMBT", 1)}
    rule = "a number such as 1.3B, 350M or 1e21"
    return _parsed(value, units, rule, lambda number, unit: float(number) * unit)


def parse_share(value: str) -> float:
    """Return a share such as "0.1%" or "0.001" as a number; a ValueError if it is none."""
    rule = "a number such as 0.001 or 0.1%"
    return _parsed(value.strip(), {"%": 100}, rule, lambda number, unit: float(number) / unit)


def _parsed(text: str, units: dict[str, int], rule: str, read: Callable[[str, int], N]) -> N:
    """Return what `read` makes of a number and the value of its unit, which is 1 if it has none."""
    unit = next((each for each in units if text.endswith(each)), "")
    try:
        return read(text.removesuffix(unit), units.get(unit, 1))
    except (ValueError, OverflowError) as error:  # "inf" overflows as a whole number
        raise ValueError(f"must be {rule}") from error


UNITS: dict[str, Callable[[str], Any]] = {
    "bytes": parse_bytes,
    "tokens": parse_length,
    "quantity": parse_quantity,
}


def valid_values(hint: Any) -> str:
    """Describe the valid values of a type; "" if there is nothing useful to say."""
    metas = list(metas_of(hint))
    parts = [_described(kind, metas) for kind in kinds_of(hint)]
    if not all(parts):
        return ""
    text = f"{' or '.join(parts)}{', or none' if type(None) in members_of(hint) else ''}"
    descriptions = (meta.description or "" for meta in metas)
    examples = (each.partition("e.g. ")[2].partition(" (")[0] for each in descriptions)
    example = next(filter(None, examples), "")
    return f"{text}, e.g. {example}" if example else text


def _described(kind: Any, metas: list[Meta]) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (list, tuple):
        return _list_of(bare(arguments[0]), any(meta.min_length for meta in metas))
    if kind in (int, float):
        return _number(kind, metas)
    return {bool: "true or false", str: "text"}.get(kind, "")


def _list_of(kind: Any, needs_one: bool) -> str:
    if is_literal(kind):
        return f"one or several of {', '.join(map(str, typing.get_args(kind)))}"
    if typing.get_origin(kind) is tuple:
        return "a list of pairs"
    what = {str: "text", int: "whole number"}.get(kind)
    if what is None:
        return ""
    return f"a list of at least one {what}" if needs_one else f"a list of {what}s"


def _number(kind: type, metas: list[Meta]) -> str:
    what = "a whole number" if kind is int else "a number"
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = (
        f"{word} {getattr(meta, name)}"
        for name, word in words.items()
        for meta in metas
        if getattr(meta, name) is not None
    )
    limits = " and ".join(bounds)
    return f"{what}, {limits}" if limits else what


def members_of(hint: Any) -> Iterator[Any]:
    """The members of a union, or the type itself."""
    if typing.get_origin(bare(hint)) in (typing.Union, types.UnionType):
        yield from typing.get_args(bare(hint))
    else:
        yield hint


def kinds_of(hint: Any) -> Iterator[Any]:
    """The types that a value may have, without annotations and without None."""
    for member in members_of(hint):
        if member not in NOTHING:
            plain = bare(member)
            yield from (plain,) if plain is member else kinds_of(plain)


def metas_of(hint: Any) -> Iterator[Meta]:
    """The annotations of a type and of the members of a union."""
    if typing.get_origin(hint) is Annotated:
        yield from (meta for meta in hint.__metadata__ if isinstance(meta, Meta))
        yield from metas_of(bare(hint))
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        for member in typing.get_args(hint):
            yield from metas_of(member)


def bare(hint: Any) -> Any:
    """A type without its annotations."""
    while typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    return hint


def is_literal(kind: Any) -> bool:
    """Whether a type is a choice of names."""
    return typing.get_origin(kind) is Literal


def is_struct(kind: Any) -> bool:
    """Whether a type is a struct, and so a section of options."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def counted(number: int, what: str) -> str:
    """Format a count: "1 document", "2,000 documents"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def rounded(number: float) -> str:
    """Format a figure with three digits: "311,000", "1.23"."""
    return f"{float(f'{number:.3g}'):,.10g}"


def number_text(number: float) -> str:
    """Format a figure of any kind: whole numbers in full, others with three digits."""
    if abs(number) >= 1e15:
        return f"{number:.3g}"
    return f"{int(number):,}" if float(number).is_integer() else rounded(number)


def speed_text(seconds: float, documents: int, items: int, what: str, text_bytes: int) -> str:
    """Format a speed: "680 documents, 311,000 tokens and 1.23 MB of text a second"."""
    seconds = max(seconds, 1e-9)
    counts = f"{rounded(documents / seconds)} documents, {rounded(items / seconds)} {what}"
    return f"{counts} and {size_text(text_bytes / seconds, rounded)} of text a second"


def size_text(num_bytes: float, number: Callable[[float], str] = "{:.0f}".format) -> str:
    """Format a number of bytes: "1.50 GB"."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{number(num_bytes)} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.2f} GB"


def duration_text(seconds: float) -> str:
    """Format a duration: "1:02:03"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def unknown_facts(number: int, tokens: int) -> list[tuple[str, str]]:
    """The line about unknown tokens; empty if there are none."""
    if not number:
        return []
    return [
        ("unknown", f"{counted(number, 'unknown token')}, {number / max(tokens, 1):.2%} of all")
    ]


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is longer than `most` characters."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def safe_text(text: str) -> str:
    """Text that cannot control a terminal or a page: control characters become visible escapes."""
    return "".join(c if c in "\n\t" else one_line(c) for c in text)
