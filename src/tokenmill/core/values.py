"""How users write values, how messages describe the valid ones, and how they show numbers."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

NOTHING = (type(None), msgspec.UnsetType)


def parse_bytes(value: str) -> int:
    """Return a size such as "2GB", "512 MiB" or "1000" in bytes.

    Raises:
        ValueError: the text is not a size.
    """
    units = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
    text = value.strip().upper().removesuffix("B")
    binary = text.endswith("I")
    text = text.removesuffix("I")
    number, unit = (text[:-1], text[-1]) if text[-1:] in units and text[-1:] else (text, "")
    scale = 1024 ** list(units).index(unit) if binary else units[unit]
    try:
        return int(float(number) * scale)
    except (ValueError, OverflowError) as error:  # "inf" overflows
        raise ValueError("must be a size such as 2GB or 512MiB") from error


def parse_length(value: str) -> int:
    """Return the number of tokens that a text names: "4096", or "4k" for 4,096.

    Raises:
        ValueError: the text is neither.
    """
    text = value.strip().lower()
    try:
        return int(text.removesuffix("k")) * (1024 if text.endswith("k") else 1)
    except ValueError as error:
        raise ValueError("must be a whole number such as 4096 or 4k") from error


def parse_quantity(value: str) -> float:
    """Return a number such as "1.3B", "350M" or "1e21".

    Raises:
        ValueError: the text is not a number.
    """
    units = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
    number = value[:-1] if value[-1:] in units else value
    try:
        return float(number) * units.get(value[-1:], 1)
    except ValueError as error:
        raise ValueError("must be a number such as 1.3B, 350M or 1e21") from error


def parse_share(value: str) -> float:
    """Return a share such as "0.1%" or "0.001" as a number.

    Raises:
        ValueError: the text is not a number.
    """
    text = value.strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise ValueError("must be a number such as 0.001 or 0.1%") from error


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
    shown = (c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)
    return "".join(shown)


def _escaped(character: str) -> str:
    """The escape of a character in a Python string."""
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
