"""The boundaries of segments in the rows of a batch. Positions and masks are computed from them.

    row 0   7 8 9 3 4 2 0      edges 0 3 6 7    segments 0 0 0 1 1 1 -1
    row 1   5 6 5 6 5 6 2      edges 7 14       segments 0 0 0 0 0 0  0

Edges count tokens over all rows, and every row starts at an edge: they are the `cu_seqlens` of
FlashAttention. In each row, padding is a segment with the number -1, so that every query has a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import BoolArray, Int32Array, Int64Array
from tokenmill.kernels import segments as kernel
from tokenmill.kernels.interpreted import for_first_steps

PADDING = -1


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return an array or a tensor as an array. Those of a GPU are copied, which waits for it."""
    return np.asarray(values.cpu() if hasattr(values, "cpu") else values)


@dataclass(frozen=True)
class Segmentation:
    """The boundaries of the segments in `num_rows` rows of `row_length` tokens each."""

    num_rows: int
    row_length: int
    edges: Int32Array
    """Shape (num_segments + 1,), strictly increasing from 0 to num_rows * row_length."""
    is_padding: BoolArray
    """Shape (num_segments,)."""

    def __post_init__(self) -> None:
        edges, total = self.edges, self.num_rows * self.row_length
        if len(edges) != len(self.is_padding) + 1 or edges[0] != 0 or edges[-1] != total:
            why = f"{len(edges)} edges, {len(self.is_padding)} segments, {total} tokens"
            raise UserError("the segments do not cover their rows", why=why)
        if (np.diff(edges) < 1).any() or (self.rows != (edges[1:] - 1) // self.row_length).any():
            raise UserError("a segment is empty or extends into the next row")

    @staticmethod
    def of_flags(flags: npt.NDArray[np.uint8]) -> Segmentation:
        """Return the segmentation that the flags of tokens say, shape (num_rows, row_length)."""
        (num_rows, row_length), flat = flags.shape, flags.reshape(-1)
        find = for_first_steps(kernel.find_segments, len(flat))
        edges, is_padding = find(flat, flat[: len(flat) // 8 * 8].view(np.uint64))
        return Segmentation(num_rows, row_length, edges, is_padding)

    @staticmethod
    def of_lengths(rows: list[list[int]], row_length: int) -> Segmentation:
        """Return the segmentation of rows with segments of these lengths, padded at the end.

        Raises:
            UserError: the segments of a row are longer than `row_length` in total.
        """
        lengths: list[int] = []
        is_padding: list[bool] = []
        for row in rows:
            rest = row_length - sum(row)
            if rest < 0:
                why = f"they have {sum(row)} tokens, and row_length is {row_length}"
                raise UserError("the segments of a row are longer than the row", why=why)
            lengths += [*row, *([rest] if rest else [])]
            is_padding += [False] * len(row) + [True] * bool(rest)
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        return Segmentation(len(rows), row_length, edges, np.array(is_padding, np.bool_))

    def __len__(self) -> int:
        return len(self.is_padding)

    @property
    def lengths(self) -> Int32Array:
        """Length of each segment in tokens, shape (num_segments,)."""
        return np.diff(self.edges)

    @property
    def rows(self) -> Int64Array:
        """Row of each segment, shape (num_segments,)."""
        return self.edges[:-1].astype(np.int64) // max(self.row_length, 1)

    @property
    def max_length(self) -> int:
        """Length of the longest segment in tokens, including padding."""
        return int(self.lengths.max(initial=0))

    @cached_property
    def ids(self) -> Int32Array:
        """Number of each token's segment in its row, from 0; -1 for padding.

        Shape (num_rows, row_length).
        """
        rows = self.rows
        numbers = np.arange(len(self)) - np.searchsorted(rows, rows)
        numbers[self.is_padding] = PADDING
        return np.repeat(numbers.astype(np.int32), self.lengths).reshape(
            self.num_rows, self.row_length
        )

    @cached_property
    def positions(self) -> Int32Array:
        """Position of each token in its segment, from 0, shape (num_rows, row_length)."""
        positions = np.empty((self.num_rows, self.row_length), np.int32)
        self.count_positions(positions, np.zeros(len(self), np.int64))
        return positions

    def count_positions(self, positions: npt.NDArray[np.integer], firsts: Int64Array) -> None:
        """Fill `positions`, shape (num_rows, row_length): from `firsts[i]` on in segment i."""
        count = for_first_steps(kernel.count_positions, positions.size)
        count(positions.reshape(-1), self.edges, firsts)

    def part(self, first: int, stop: int) -> Segmentation:
        """Return the rows [first, stop)."""
        places = np.array([first, stop]) * self.row_length
        begin, end = np.searchsorted(self.edges, places).tolist()
        edges = self.edges[begin : end + 1] - self.edges[begin]
        return Segmentation(stop - first, self.row_length, edges, self.is_padding[begin:end])

    def padded_edges(self, num_segments: int) -> Int32Array:
        """Return `edges`, padded with empty segments to the shape (num_segments + 1,).

        Raises:
            UserError: there are more than `num_segments` segments.
        """
        if len(self) > num_segments:
            why = f"there are {len(self)}, and cu_seqlens has room for {num_segments}"
            raise UserError("too many segments", why=why)
        padded = np.full(num_segments + 1, self.edges[-1], np.int32)
        padded[: len(self.edges)] = self.edges
        return padded
