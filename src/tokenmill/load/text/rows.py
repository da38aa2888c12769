"""Rows made of pieces that are in memory, in the form of `tokenmill.load.rows.reader`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.load.rows.assembly import REAL, RESTART, TARGET
from tokenmill.load.rows.reader import IGNORE_INDEX, Labels, Rows


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document that stands in one row."""

    ids: npt.NDArray[np.integer]
    """Its tokens, and the one after them where the document goes on."""
    length: int
    """Tokens without that one."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """How rows are made of pieces."""

    row_length: int
    labels: Labels
    pad_id: int

    def rows(self, sequences: Sequence[Sequence[Piece]]) -> Rows:
        """A row for each sequence of pieces; one without pieces is all padding."""
        shape = (len(sequences), self.row_length)
        ids = np.full(shape, self.pad_id, np.int64)
        labels = np.full(shape, IGNORE_INDEX, np.int64)
        is_next = self.labels == "next"
        flags = np.zeros(shape, np.uint8)
        for row, pieces in enumerate(sequences):
            column = 0
            for piece in pieces:
                stop = column + piece.length
                ids[row, column:stop] = piece.ids[: piece.length]
                flags[row, column:stop] = REAL
                flags[row, column] |= RESTART
                if is_next:
                    last = column + len(piece.ids) - 1
                    labels[row, column:last] = piece.ids[1:]
                    flags[row, column:last] |= TARGET
                else:
                    labels[row, column + 1 : stop] = piece.ids[1 : piece.length]
                    flags[row, column + 1 : stop] |= TARGET
                column = stop
            if column < self.row_length:
                flags[row, column] |= RESTART
        return Rows(ids, labels, flags, not is_next)
