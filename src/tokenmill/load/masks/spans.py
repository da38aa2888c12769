"""Evaluate rules on spans of positions: is none, some or all of a tile visible?

A tile of queries 4..7 and keys 0..3 of one segment:

    Causal()     k.position <= q.position      0..3 <= 4..7             all
    Window(3)    q.position - k.position < 3   4..7 - 0..3 = 1..7 < 3   mixed
    Sinks(2)     k.position < 2                0..3 < 2                 mixed

A comparison is decided exactly by the ends of the spans, because a tile contains every pair of a
query and a key. If two comparisons are both mixed, their combination is not known. So an `Outcome`
holds all answers that are still possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.load.rows.segmentation import BoolArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """The answers that are still possible for each tile. All arrays have the same shape."""

    none: BoolArray
    mixed: BoolArray
    every: BoolArray

    @staticmethod
    def of(some: BoolArray, every: BoolArray) -> Outcome:
        """Create outcomes from whether some and whether all elements of a tile are visible."""
        return Outcome(~some, some & ~every, every)

    @property
    def undecided(self) -> BoolArray:
        """Whether more than one answer is possible."""
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
    """The range of a field in each tile, from `first` to `last`, both included."""

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
    """The remainders of a span. They are not a span; they can only be compared with 0."""

    span: Span
    size: int

    def __eq__(self, zero: int) -> Outcome:  # type: ignore[override]
        first, last = self.span.first, self.span.last
        some = last // self.size * self.size >= first
        return Outcome.of(some, (first == last) | (self.size == 1))


class SpanTable:
    """A table of bool that can be looked up by spans of its rows and columns.

    A summed-area table gives the number of set cells in any rectangle.
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
