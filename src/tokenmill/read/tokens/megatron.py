"""Megatron's pairs: `.bin` holds ids, `.idx` sequences and documents; see `store/layout.py`.

An index need not have one sequence per document, nor follow the order of the `.bin`: Megatron's
tools write several sequences per document, and an index can filter, reorder and repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokenmill.core.errors import DamagedInputError, UserError
from tokenmill.read.source import Source
from tokenmill.read.tokens.pieces import Ids, Piece, damaged, gathered, mapped
from tokenmill.store.layout import HEADER, MAGIC

DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
"""Integer dtypes by their codes."""
AT_ONCE = 1 << 18
"""Sequences, or documents, that are checked and read at a time."""


class MegatronPair:
    """A `.bin` and its `.idx`, of which nothing is trusted."""

    left_out: tuple[str, ...] = ()

    def __init__(self, source: Source, index: Path) -> None:
        """Check the whole index.

        Raises:
            DamagedInputError: it contradicts itself or the `.bin`.
            UserError: its sequences have modes, as those of several kinds of data.
        """
        self.source, self.index = source, index
        self.num_empty = 0
        assert source.path is not None
        data = mapped(index, np.dtype(np.uint8))
        self.dtype, num_sequences, num_bounds = self._header(data)
        start = HEADER.size
        self._lengths = np.frombuffer(data, "<i4", num_sequences, start)
        self._places = np.frombuffer(data, "<i8", num_sequences, start + 4 * num_sequences)
        self._bounds = np.frombuffer(data, "<i8", num_bounds, start + 12 * num_sequences)
        self._ids = mapped(source.path, self.dtype)
        self._check_bounds()
        self.num_tokens, self.is_plain = self._check_sequences()

    def pieces(self) -> Iterator[Piece]:
        """Yield the ids of all documents in the order of the index."""
        self.num_empty = 0
        for first in range(0, len(self._bounds) - 1, AT_ONCE):
            bounds = self._bounds[first : first + AT_ONCE + 1].astype(np.int64)
            within = slice(int(bounds[0]), int(bounds[-1]))
            lengths = self._lengths[within].astype(np.int64)
            places = self._places[within].astype(np.int64)
            stops = np.append(0, np.cumsum(lengths))[bounds - bounds[0]]
            has_ids = stops[1:] > stops[:-1]
            self.num_empty += int((~has_ids).sum())
            filled = lengths > 0
            lengths, places = lengths[filled], places[filled]
            begins = np.searchsorted(np.cumsum(lengths), stops[:-1][has_ids], side="right")
            starts = places // self.dtype.itemsize
            yield from gathered(self._ids, starts, lengths, stops[1:][has_ids], places[begins])

    def _header(self, data: Ids) -> tuple[np.dtype[np.integer], int, int]:
        """Return the dtype, the number of sequences, and the length of the list of documents."""
        size = len(data)
        if size < HEADER.size:
            raise self._damaged(f"it has {size} bytes; the header alone has {HEADER.size}")
        magic, version, code, num_sequences, num_bounds = HEADER.unpack(
            data[: HEADER.size].tobytes()
        )
        if magic != MAGIC or version != 1:
            raise self._damaged(f"it begins with {magic!r}, version {version}")
        if code not in DTYPES:
            why = f"its dtype code is {code}; those of integers are {', '.join(map(str, DTYPES))}"
            raise self._damaged(why)
        rest = size - HEADER.size - 12 * num_sequences - 8 * num_bounds
        if rest == num_sequences > 0:
            raise UserError(
                "cannot adopt an index of several kinds of data",
                where=str(self.index),
                why="its sequences have modes: some are no text, and their ids no tokens",
                hint="write the text alone with Megatron's tools",
            )
        if rest or not num_bounds:
            parts = f"{num_sequences} sequences and {num_bounds} bounds of documents"
            raise self._damaged(f"{parts} do not fit its {size} bytes")
        return np.dtype(DTYPES[code]), num_sequences, num_bounds

    def _check_bounds(self) -> None:
        """Check that documents divide the sequences."""
        first, last, count = int(self._bounds[0]), int(self._bounds[-1]), len(self._lengths)
        if (first, last) != (0, count):
            why = f"its documents go from sequence {first} to {last}, and it has {count} sequences"
            raise self._damaged(why)
        for start in range(0, len(self._bounds), AT_ONCE):
            bounds = self._bounds[start : start + AT_ONCE + 1]
            if (bounds[1:] < bounds[:-1]).any():
                raise self._damaged(f"a document after number {start} ends before it begins")

    def _check_sequences(self) -> tuple[int, bool]:
        """Check that all sequences lie in the `.bin`.

        Returns the ids in them, and whether they are the `.bin` from its start to its end.
        """
        size, itemsize = self.source.num_bytes, self.dtype.itemsize
        if size % itemsize:
            raise damaged(self.source.where, f"{size} bytes are no whole number of {self.dtype}")
        total, is_plain = 0, True
        for start in range(0, len(self._lengths), AT_ONCE):
            lengths = self._lengths[start : start + AT_ONCE].astype(np.int64)
            places = self._places[start : start + AT_ONCE].astype(np.int64)
            if (lengths < 0).any():
                raise self._damaged(f"sequence {start + int((lengths < 0).argmax())} has < 0 ids")
            outside = (places < 0) | (places > size - lengths * itemsize) | (places % itemsize > 0)
            if outside.any():
                bad = int(outside.argmax())
                why = f"sequence {start + bad} begins at byte {places[bad]} with {lengths[bad]} ids"
                raise self._damaged(f"{why}, and the .bin has {size} bytes of {self.dtype}")
            before = total * itemsize + (np.cumsum(lengths) - lengths) * itemsize
            is_plain = is_plain and bool((before == places)[lengths > 0].all())
            total += int(lengths.sum())
        return total, is_plain and total * itemsize == size

    def _damaged(self, why: str) -> DamagedInputError:
        return damaged(self.index, why)
