"""Find which tiles of an attention matrix are empty, full or partial, from boundaries alone.

Tiles of 4 queries by 4 keys, causal, segments of 8 and 4 tokens (`#` full, `+` partial):

    queries 0-3     + . .
    queries 4-7     # + .
    queries 8-11    . . +      a kernel skips `.` and does not evaluate the mask in `#`

A tile is cut at segment boundaries into pieces of one segment each. Most pieces are decided from
the spans of their positions or from their corners. Only the rest is evaluated element by element.
Tiles that no segment connects are never visited, so the work grows with the segments, not with the
square of the row length.

Spans are what rules are evaluated on. For a piece of queries 4..7 and keys 0..3 of one segment:

    Causal()     k.position <= q.position      0..3 <= 4..7             all
    Window(3)    q.position - k.position < 3   4..7 - 0..3 = 1..7 < 3   mixed
    Sinks(2)     k.position < 2                0..3 < 2                 mixed

A comparison is decided exactly by the ends of the spans, because a piece contains every pair of a
query and a key. If two comparisons are both mixed, their combination is not known. So an `Outcome`
holds all answers that are still possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import BoolArray, Int32Array, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.rules import Mask, Tokens, visible, with_tables

PIECES_AT_ONCE = 1 << 20
ELEMENTS_AT_ONCE = 1 << 22
"""Limit on the elements in memory, for tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiles with visible elements; arrays have shape (num_rows, query tiles, key tiles)."""

    partial: BoolArray
    """Some elements are visible, or the tile extends past the end of its row."""
    full: BoolArray
    """All elements are visible."""


def find_tiles(mask: Mask, grid: Grid, block_size: tuple[int, int] = (128, 128)) -> Tiles:
    """Return tiles of `block_size` (queries, keys), counted from the first query and key.

    Raises:
        UserError: the grid lacks what the mask needs, or a block has no tokens.
    """
    grid.check(mask)
    if min(block_size) < 1:
        raise UserError("block_size must be at least 1", why=f"got {block_size}")
    queries = _strips(grid, grid.first_query, block_size[0])
    keys = _strips(grid, 0, block_size[1])
    shape = (grid.num_rows, queries.num_tiles, keys.num_tiles)
    tiles = Tiles(np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))
    decider = _Decider(mask, grid, (queries, keys), block_size)
    for q, k in _pieces(queries, keys, len(grid.segmentation)):
        answer = decider.decide(q, k)
        whole = (queries.sizes == block_size[0])[q] & (keys.sizes == block_size[1])[k]
        full = answer.every & whole
        for flags, chosen in ((tiles.full, full), (tiles.partial, ~answer.none & ~full)):
            at = q[chosen]
            flags[queries.rows[at], queries.tiles[at], keys.tiles[k[chosen]]] = True
    return tiles


def ordered(flags: BoolArray) -> tuple[Int32Array, Int32Array]:
    """Return the key tiles of each query tile, in the format of FlexAttention.

    Args:
        flags: shape (num_rows, query tiles, key tiles).

    Returns:
        The number of set flags, shape (num_rows, query tiles), and key tile indices in the shape
        of `flags`: those with a set flag first, then the others, both ascending.
    """
    counts = np.count_nonzero(flags, axis=-1).astype(np.int32)
    return counts, np.argsort(~flags, axis=-1, kind="stable").astype(np.int32)


@dataclass(frozen=True, slots=True)
class _Strips:
    """The tokens of a segment in a tile: one side of a piece. Arrays have shape (num_strips,)."""

    rows: Int64Array
    tiles: Int64Array
    segments: Int32Array
    firsts: Int32Array
    """Positions in the segment of the first and of the last token."""
    lasts: Int32Array
    num_tiles: int

    @property
    def sizes(self) -> Int32Array:
        return self.lasts - self.firsts + 1


def _strips(grid: Grid, first: int, block_size: int) -> _Strips:
    """Return the strips of all rows from column `first` on, in tiles counted from there."""
    length, edges = grid.row_length, grid.segmentation.edges
    num_tiles = -(-(length - first) // block_size)
    tile_starts = np.arange(num_tiles) * block_size + first
    row_starts = np.arange(grid.num_rows) * length
    cuts = np.union1d(edges, row_starts[:, None] + tile_starts)
    rows, columns = np.divmod(cuts[:-1], max(length, 1))
    inside = columns >= first
    starts, sizes = cuts[:-1][inside], np.diff(cuts)[inside]
    segments = np.searchsorted(edges, starts, side="right") - 1
    firsts = starts - edges[segments]
    return _Strips(
        rows[inside],
        (columns[inside] - first) // block_size,
        segments.astype(np.int32),
        firsts.astype(np.int32),
        (firsts + sizes - 1).astype(np.int32),
        num_tiles,
    )


def _pieces(
    queries: _Strips, keys: _Strips, num_segments: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield pairs of strips that share a segment, as indices of both, many at a time."""
    first_keys = np.searchsorted(keys.segments, np.arange(num_segments + 1))
    firsts = first_keys[queries.segments]
    counts = first_keys[queries.segments + 1] - firsts
    offsets = offsets_from_lengths(counts)
    begin = 0
    while begin < len(counts):
        limit = offsets[begin] + PIECES_AT_ONCE
        end = max(int(np.searchsorted(offsets, limit, side="right")) - 1, begin + 1)
        q = np.repeat(np.arange(begin, end), counts[begin:end])
        k = np.arange(offsets[begin], offsets[end]) + (firsts - offsets[:-1])[q]
        yield q, k
        begin = end


class _Decider:
    """Decides for pieces whether none, some or all of their elements are visible."""

    def __init__(
        self,
        mask: Mask,
        grid: Grid,
        sides: tuple[_Strips, _Strips],
        block_size: tuple[int, int],
    ) -> None:
        longest = grid.segmentation.max_length
        self._on_spans = with_tables(mask, longest, SpanTable)
        self._on_arrays = with_tables(mask, longest, np.asarray)
        self._grid, self._sides = grid, sides
        q, k = (np.arange(size, dtype=np.int32) for size in block_size)
        self._elements = q[:, None], k
        self._corners = q[[0, -1], None], k[[0, -1]]

    def decide(self, *pieces: Int64Array) -> Outcome:
        """Return the outcome for each piece."""
        q, k = (self._spans(*side) for side in zip(self._sides, pieces, strict=True))
        answer: Outcome = visible(self._on_spans, q, k)
        for part, some, every in self._evaluated(answer, pieces, self._corners):
            answer.none[part] &= ~some
            answer.every[part] &= every
        for part, some, every in self._evaluated(answer, pieces, self._elements):
            exact = Outcome.of(some, every)
            answer.none[part], answer.mixed[part] = exact.none, exact.mixed
            answer.every[part] = exact.every
        return answer

    def _evaluated(
        self, answer: Outcome, pieces: tuple[Int64Array, ...], offsets: tuple[Int32Array, ...]
    ) -> Iterator[tuple[Int64Array, BoolArray, BoolArray]]:
        """Yield undecided pieces, and whether some and all of their elements are visible.

        Only elements at `offsets` are evaluated.
        """
        undecided = np.flatnonzero(answer.undecided)
        step = max(ELEMENTS_AT_ONCE // (offsets[0].size * offsets[1].size), 1)
        for begin in range(0, len(undecided), step):
            part = undecided[begin : begin + step]
            q, k = (
                self._tokens(strips, chosen[part], at)
                for strips, chosen, at in zip(self._sides, pieces, offsets, strict=True)
            )
            seen = visible(self._on_arrays, q, k)
            yield part, seen.any((1, 2)), seen.all((1, 2))

    def _spans(self, strips: _Strips, chosen: Int64Array) -> Tokens:
        """Return the spans of strips, for rules to evaluate."""
        positions = Span(strips.firsts[chosen], strips.lasts[chosen])
        return self._grid.tokens(strips.segments[chosen], positions, lambda v: Span(v, v))

    def _tokens(self, strips: _Strips, chosen: Int64Array, offsets: Int32Array) -> Tokens:
        """Return tokens of strips, for rules to evaluate; `offsets` broadcast to (chosen, 1, 1).

        Offsets past the end of a strip give its last token again. Evaluating a token twice does not
        change whether some or all elements are visible.
        """
        firsts, lasts = (ends[chosen][:, None, None] for ends in (strips.firsts, strips.lasts))
        positions = np.minimum(firsts + offsets, lasts)
        segments = strips.segments[chosen]
        return self._grid.tokens(segments, positions, lambda v: v[:, None, None])


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
