"""What a display shows for one kind of run (a build, a count)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Shown(Generic[P, R]):
    """The texts of a display. `P` is the prepared run before its first unit, `R` its report."""

    facts: Callable[[P], Iterable[tuple[str, str]]]
    """Facts shown before the first unit: names and values."""
    counted: str
    """What is counted besides documents, for example "tokens"."""
    writes: bool
    """Whether to show the rate of writing."""
    lines: Callable[[R, float], list[str]]
    """The summary as lines, from the report and the seconds before the first unit."""
    values: Callable[[R], dict[str, object]]
    """The summary as values for JSON."""
