"""Token files as streams of pieces: ids, and where documents end in them.

    ids    [5 6 0 7 | 8 0 9 0]     two pieces of four ids, documents [5 6 0] [7 8 0] [9 0]
    ends   [3]      | [2 4]

A document can be longer than a piece, so that memory never has to hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

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
    """Shape (n,), n > 0."""
    ends: Int64Array
    """Shape (m,), ascending, from 1 to n: one past the last id of each document that ends here."""
    positions: Int64Array
    """Shape (m,): where these documents begin in their source: a byte, or a row of a table."""


class TokenFile(Protocol):
    """A file with token ids, and the boundaries of its documents."""

    source: Source
    is_plain: bool
    """Whether the ids of all documents, in order, are the bytes of the file."""
    num_tokens: int
    """Ids in all documents, or about as many."""
    num_empty: int
    """Documents without ids, which are in no piece. Known after the last piece."""
    left_out: tuple[str, ...]
    """What lies beside the ids and is not read, such as other columns. Known after a piece."""

    @property
    def dtype(self) -> np.dtype[np.integer] | None:
        """Of the ids in the file; None if they are a column of a table."""

    def pieces(self) -> Iterator[Piece]:
        """Yield the ids of all documents.

        Raises:
            DamagedInputError: the file or its index is damaged.
            UserError: it holds something else than ids.
        """


def gathered(
    ids: Ids, starts: Int64Array, lengths: Int64Array, ends: Int64Array, positions: Int64Array
) -> Iterator[Piece]:
    """Yield ranges of `ids`, one after the other; neighbours are read at once.

    Args:
        ids: all ids of a file, shape (num_tokens,).
        starts: first id of each range, shape (n,).
        lengths: ids of each range, at least one, shape (n,).
        ends: one past the last id of each document, counted in the ids yielded, shape (m,).
        positions: see `Piece`, shape (m,).
    """
    edges = np.flatnonzero(starts[1:] != starts[:-1] + lengths[:-1]) + 1
    firsts = starts[np.append(0, edges)[: len(starts)]]
    stops = (starts + lengths)[np.append(edges - 1, len(starts) - 1)[: len(starts)]]
    held: list[Ids] = []
    size = done = 0

    def flushed() -> Piece:
        first, last = np.searchsorted(ends, [done, done + size], side="right")
        joined = held[0] if len(held) == 1 else np.concatenate(held)
        return Piece(joined, ends[first:last] - done, positions[first:last])

    for start, stop in zip(firsts.tolist(), stops.tolist(), strict=True):
        for place in range(start, stop, PIECE_TOKENS):
            held.append(ids[place : min(place + PIECE_TOKENS, stop)])
            size += len(held[-1])
            if size >= PIECE_TOKENS:
                yield flushed()
                held, done, size = [], done + size, 0
    if held:
        yield flushed()


def split_after(
    eos_id: int, parts: Iterable[tuple[Ids, Callable[[Int64Array], Int64Array]]]
) -> Iterator[Piece]:
    """Yield the ids of `parts`, with documents that end after each `eos_id` and after the last id.

    Each part comes with a function that returns the positions of some of its ids, given their
    indices in it.
    """
    begun: int | None = None
    """The position of a document that began in an earlier part."""
    held: Piece | None = None
    for ids, positions_of in parts:
        if not len(ids):
            continue
        if held is not None:
            yield held
        ends = np.flatnonzero(ids == eos_id) + 1
        starts = np.append(0, ends)
        positions = positions_of(starts[starts < len(ids)])
        if begun is not None:
            positions[0] = begun
        begun = int(positions[-1]) if len(positions) > len(ends) else None
        held = Piece(ids, ends, positions[: len(ends)])
    if held is not None and begun is not None:
        ends = np.append(held.ends, len(held.ids))
        held = Piece(held.ids, ends, np.append(held.positions, begun))
    if held is not None:
        yield held


def mapped(path: Path, dtype: np.dtype[np.integer]) -> Ids:
    """Return the whole values of a file, shape (n,), as a read-only memory map."""
    if path.stat().st_size < dtype.itemsize:
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(path.stat().st_size // dtype.itemsize,))


def damaged(path: Path | str, why: str) -> DamagedInputError:
    """Return the error for a damaged token file."""
    hint = "get the file again, or write it again with the tool that made it"
    return DamagedInputError("a token file is damaged", where=str(path), why=why, hint=hint)
