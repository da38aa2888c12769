"""Tables as values: built once beside their figures, printed by terminals and drawn by pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from tokenmill.core.values import size_text

T = TypeVar("T")


class Number(str):
    """The text of a number in a table. A page sorts it by its value."""

    __slots__ = ("value",)
    value: float

    def __new__(cls, value: float, text: str) -> Number:
        """Return a text with its value."""
        found = super().__new__(cls, text)
        found.value = value
        return found


Cell = Number | str
Fact = tuple[str, str]
"""A name and a value."""
Table = tuple[Sequence[str], Sequence[Sequence[Cell]]]
"""A header, and rows."""


def table_of(columns: Mapping[str, Callable[[T], Cell]], items: Iterable[T]) -> Table:
    """Return a table with a row for each item; each column says what it shows of an item."""
    return list(columns), [[cell(item) for cell in columns.values()] for item in items]


def number(value: float, form: str = "") -> Number:
    """A number, by default as a count or with two digits after the point."""
    return Number(value, format(value, form or ("," if isinstance(value, int) else ",.2f")))


def known(value: float | None, form: str = "") -> Cell:
    """A number, or "-" for one that is not known."""
    return "-" if value is None else number(value, form)


def percent(share: float, digits: int = 2) -> Number:
    """A share of 1 as a percentage."""
    return number(share, f".{digits}%")


def size(num_bytes: float) -> Number:
    """A number of bytes."""
    return Number(num_bytes, size_text(num_bytes))
