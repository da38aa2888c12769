"""Token files as streams of pieces: ids, and where documents end in them.

    ids    [5 6 0 7 | 8 0 9 0]     two pieces of four ids, documents [5 6 0] [7 8 0] [9 0]
    ends   [3]      | [2 4]

A document can be longer than a piece, so that memory never has to hold one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import DamagedInputError
from tokenmill.core.records import Int64Array
from tokenmill.read.source import Source

PIECE_TOKENS = 1 << 20

Ids = npt.NDArray[np.integer]


class Piece(NamedTuple):
    """Consecutive ids of a file."""

    ids: Ids
    """Shape (n,)."""
    ends: Int64Array
    """Shape (m,), ascending, from 0 to n: one past the last id of each document that ends here.

    A document without ids ends where the one before it does.
    """
    positions: Int64Array
    """Shape (m,): where these documents begin in their source: a byte, or a row of a table."""


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """A file with token ids, and the boundaries of its documents."""

    source: Source
    num_tokens: int
    """Ids in all documents, or about as many."""
    plain_dtype: np.dtype[np.integer] | None = None
    """The dtype of the file if it holds the ids of all documents, in order, and nothing else."""
    left_out: tuple[str, ...] = ()
    """What lies beside the ids and is not read, such as other columns."""
    pieces: Callable[[], Iterator[Piece]]
    """Yields the ids of all documents.

    Raises:
        DamagedInputError: the file or its index is damaged.
        UserError: it holds something else than ids.
    """


class Ranges(NamedTuple):
    """Ranges of the ids of a file, one after the other, and the documents that they make up."""

    starts: Int64Array
    """Shape (n,): the first id of each range."""
    lengths: Int64Array
    """Shape (n,)."""
    ends: Int64Array
    """Shape (m,): one past the last id of each document, counted in the ids of these ranges."""


def gathered(ids: Ids, batches: Iterable[Ranges]) -> Iterator[Piece]:
    """Yield the ids of ranges; `ids` are those of the whole file, shape (num_tokens,)."""
    for starts, lengths, ends in batches:
        stops = np.cumsum(lengths)
        filled = np.searchsorted(stops, np.append(0, ends[:-1]), side="right")
        positions = np.append(starts, 0)[filled] * ids.itemsize  # of the first range with ids
        total, done = int(lengths.sum()), 0
        if not total:
            yield Piece(ids[:0], ends, positions)
        for first in range(0, total, PIECE_TOKENS):
            stop = min(first + PIECE_TOKENS, total)
            some = slice(np.searchsorted(stops, first + 1), np.searchsorted(stops, stop) + 1)
            shifts = (starts + lengths)[some] - stops[some]
            ended = slice(done, int(np.searchsorted(ends, stop, side="right")))
            part = _between(ids, first, np.minimum(stops[some], stop), shifts)
            yield Piece(part, ends[ended] - first, positions[ended])
            done = ended.stop


def _between(ids: Ids, first: int, stops: Int64Array, shifts: Int64Array) -> Ids:
    """Return the ids of neighbouring ranges from place `first` on; a view if they are one range.

    Args:
        ids: all ids of the file.
        first: the first place.
        stops: one past the last place of each range, shape (n,).
        shifts: how far the ids of each range are behind their places, shape (n,).
    """
    places: slice | Int64Array = slice(first + shifts[0], stops[-1] + shifts[0])
    if (shifts != shifts[0]).any():
        lengths = np.diff(stops, prepend=first)
        places = np.arange(first, stops[-1]) + np.repeat(shifts, lengths)
    found: Ids = ids[places]
    return found


def split_after(eos_id: int, pieces: Iterable[Piece], token_bytes: int = 0) -> Iterator[Piece]:
    """Yield the ids of pieces, with documents that end after each `eos_id` and after the last id.

    Pieces hold rows of a table, or a part of a flat file whose ids have `token_bytes` each.
    """
    begun: int | None = None
    """The position of a document that began in an earlier piece."""
    filled = (piece for piece in pieces if len(piece.ids))
    for piece, following in itertools.pairwise(itertools.chain(filled, [None])):
        assert piece is not None
        is_last = piece.ids == eos_id
        is_last[-1] |= following is None
        ends = np.flatnonzero(is_last) + 1
        starts = np.append(0, ends[: len(ends) - int(is_last[-1])])
        rows = np.searchsorted(piece.ends, starts, side="right")
        positions = piece.positions[rows] + token_bytes * starts
        if begun is not None:
            positions[0] = begun
        begun = None if is_last[-1] else int(positions[-1])
        yield Piece(piece.ids, ends, positions[: len(ends)])


def flat_pieces(ids: Ids) -> Iterator[Piece]:
    """Yield the ids of a file, each piece as one document, for `split_after`."""
    for at in range(0, len(ids), PIECE_TOKENS):
        part = ids[at : at + PIECE_TOKENS]
        yield Piece(part, np.array([len(part)]), np.array([at * ids.itemsize]))


def mapped(path: Path, dtype: np.dtype[np.integer]) -> Ids:
    """Return the values of a file, shape (n,), as a read-only memory map.

    Raises:
        DamagedInputError: a part of a value is left over.
    """
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise damaged(path, f"{size} bytes are no whole number of {dtype}")
    return np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)


def damaged(path: Path | str, why: str) -> DamagedInputError:
    """Return the error for a damaged token file."""
    hint = "get the file again, or write it again with the tool that made it"
    return DamagedInputError("a token file is damaged", where=str(path), why=why, hint=hint)
