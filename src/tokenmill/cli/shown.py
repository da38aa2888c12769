"""What a display says of one kind of run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Shown(Generic[P, R]):
    """`P` is what the run has prepared before its first unit, `R` its report."""

    facts: Callable[[P], Iterable[tuple[str, str]]]
    """Before the first unit, each with its name."""
    counted: str
    """What units count beside documents: "tokens"."""
    writes: bool
    """Whether the rate of writing says something."""
    lines: Callable[[R, float], list[str]]
    """The summary, given the seconds before the first unit."""
    values: Callable[[R], dict[str, object]]
    """The summary, for machines."""
