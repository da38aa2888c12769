"""Rules on spans of positions: whether of a tile none is visible, some, or all.

A tile of queries 4..7 and keys 0..3 of one segment:

    Causal()     k.position <= q.position      0..3 <= 4..7             all
    Window(3)    q.position - k.position < 3   4..7 - 0..3 = 1..7 < 3   mixed
    Sinks(2)     k.position < 2                0..3 < 2                 mixed

A comparison is decided by the ends of spans, and exactly: of a span every integer is taken, and
queries and keys are taken independently of each other. What two that are mixed make together is
not known from that, so an `Outcome` holds all the answers that are still possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.load.rows.segmentation import BoolArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """Of each tile, the answers that are still possible; arrays of one shape."""

    none: BoolArray
    mixed: BoolArray
    every: BoolArray

    @staticmethod
    def of(some: BoolArray, every: BoolArray) -> Outcome:
        """From whether some elements of a tile are visible, and whether all are."""
        return Outcome(~some, some & ~every, every)

    @property
    def undecided(self) -> BoolArray:
        """Where more than one answer is possible."""
        return (self.mixed & (self.none | self.every)) | (self.none & self.every)

    def __and__(self, other: Outcome) -> Outcome:
        both_mixed = self.mixed & other.mixed
        return Outcome(
            self.none | other.none | both_mixed,
            both_mixed | (self.mixed & other.every) | (self.every & other.mixed),
            self.every & other.every,
        )

    def __or__(self, other: Outcome) -> Outcome:
        return ~(~self & ~other)

    def __invert__(self) -> Outcome:
        return Outcome(self.every, self.mixed, self.none)


@dataclass(frozen=True, eq=False)
class Span:
    """Of each tile, the values from `first` to `last` that a field takes; all of one shape."""

    first: npt.NDArray[np.integer]
    last: npt.NDArray[np.integer]

    def __sub__(self, other: Span) -> Span:
        return Span(self.first - other.last, self.last - other.first)

    def __floordiv__(self, size: int) -> Span:
        return Span(self.first // size, self.last // size)

    def __mod__(self, size: int) -> Remainder:
        return Remainder(self, size)

    def __lt__(self, other: Span | int) -> Outcome:
        low, high = _ends(other)
        return Outcome.of(self.first < high, self.last < low)

    def __le__(self, other: Span | int) -> Outcome:
        low, high = _ends(other)
        return Outcome.of(self.first <= high, self.last <= low)

    def __ge__(self, other: Span | int) -> Outcome:
        return ~(self < other)

    def __eq__(self, other: Span | int) -> Outcome:  # type: ignore[override]
        low, high = _ends(other)
        return Outcome.of(
            (self.first <= high) & (self.last >= low), (self.first == high) & (self.last == low)
        )


@dataclass(frozen=True, eq=False)
class Remainder:
    """Remainders of a span, which are no span: all that can be asked is where they are 0."""

    span: Span
    size: int

    def __eq__(self, zero: int) -> Outcome:  # type: ignore[override]
        first, last = self.span.first, self.span.last
        some = last // self.size * self.size >= first
        return Outcome.of(some, (first == last) | (self.size == 1))


class SpanTable:
    """A table of bool, looked up by spans of its rows and of its columns.

    Sums over all rectangles from the first corner tell how many cells of any other one are set.
    """

    def __init__(self, table: BoolArray) -> None:
        self._sums = np.zeros((len(table) + 1, table.shape[1] + 1), np.int32)
        np.cumsum(np.cumsum(table, 0, np.int32), 1, out=self._sums[1:, 1:])

    def __getitem__(self, spans: tuple[Span, Span]) -> Outcome:
        (top, bottom), (left, right) = ((span.first, span.last + 1) for span in spans)
        sums = self._sums
        cells = sums[bottom, right] - sums[top, right]
        cells = cells - sums[bottom, left] + sums[top, left]
        return Outcome.of(cells > 0, cells == (bottom - top) * (right - left))


def _ends(value: Span | int) -> tuple[Any, Any]:
    return (value.first, value.last) if isinstance(value, Span) else (value, value)
