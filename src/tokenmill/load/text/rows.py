"""Assemble rows from pieces in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import InternalError
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.rows.assembly import NO_TOKENS, Rules, assemble
from tokenmill.load.rows.reader import Rows
from tokenmill.store.row_format import Labels


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a document that is in one row."""

    ids: npt.NDArray[np.integer]
    """Its tokens, and the next token if the document continues."""
    length: int
    """Number of tokens, not counting the next one."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Assembles rows of one length from pieces."""

    row_length: int
    labels: Labels
    pad_id: int
    dtype: np.dtype[np.integer]
    """Dtype of the pieces' tokens."""

    def rows(self, sequences: Sequence[Sequence[Piece]]) -> Rows:
        """Return a row for each sequence of pieces; without pieces, it is all padding."""
        shape = (len(sequences), self.row_length)
        ids, labels = np.empty(shape, np.int64), np.empty(shape, np.int64)
        flags = np.empty(shape, np.uint8)
        pieces = [piece for parts in sequences for piece in parts]
        like = np.empty(0, self.dtype)
        tokens = np.concatenate([like, *(piece.ids for piece in pieces)])
        lengths = np.array([len(piece.ids) for piece in pieces], np.int64)
        segments = np.zeros((5, len(pieces)), np.int64)
        segments[0] = np.repeat(np.arange(len(sequences)), [len(parts) for parts in sequences])
        segments[4] = [piece.length for piece in pieces]
        found = np.stack([lengths, offsets_from_lengths(lengths)[:-1]])
        table = np.array([[tokens.ctypes.data, 0, len(tokens), 0]])
        is_next = self.labels == "next"
        rules = Rules(NO_TOKENS, NO_TOKENS, self.pad_id, next_labels=is_next)
        problem, _ = assemble((ids, labels, flags), segments, found, table, like, rules)
        if problem:
            raise InternalError("the packer put more tokens into a row than fit")
        return Rows(ids, labels, flags, not is_next)
