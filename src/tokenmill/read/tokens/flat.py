"""Token files without a header: OLMo's `.npy`, datatrove's `.ds`, nanoGPT's `.bin`.

The file itself does not say how many bytes an id has: datatrove writes it beside, others follow
the size of the vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.read.source import Source
from tokenmill.read.tokens.pieces import (
    PIECE_TOKENS,
    Piece,
    damaged,
    gathered,
    mapped,
    split_after,
)

AT_ONCE = 1 << 18
_TOKEN_SIZE = re.compile(rb"[^\n]*\|(\d)\n")
_HEADS = {
    b"\x93NUMPY": "numpy.save wrote it, with a header; OLMo's files have none",
    (20240520).to_bytes(4, "little"): "it has the header of llm.c",
    (20240801).to_bytes(4, "little"): "it has the header of llm.c",
}


class FlatFile:
    """A file of ids alone; with an index of datatrove, or with an EOS after each document."""

    left_out: tuple[str, ...] = ()
    is_plain = True

    def __init__(
        self, source: Source, dtype: np.dtype[np.integer], eos_id: int, index: Path | None = None
    ) -> None:
        """Look at the sizes of the files.

        Raises:
            DamagedInputError: they are no whole numbers of ids.
            UserError: the file has a header, or looks as if its ids had more bytes than `dtype`.
        """
        self.source, self.dtype = source, dtype
        self.num_empty = 0
        self._eos_id, self._index = eos_id, index
        assert source.path is not None
        self._ids = mapped(source.path, dtype)
        self.num_tokens = len(self._ids)
        head = self._ids[:1024].tobytes()
        for magic, why in _HEADS.items():
            if head.startswith(magic):
                hint = "write the ids alone: numpy.ndarray.tofile"
                raise UserError("a token file has a header", where=source.where, why=why, hint=hint)
        if source.num_bytes % dtype.itemsize:
            raise damaged(source.where, f"{source.num_bytes} bytes are no whole number of {dtype}")
        first = self._ids[:PIECE_TOKENS]
        if dtype.itemsize == 2 and len(first) > 3 and not first[1::2].any():
            raise UserError(
                "the ids of a token file seem to have four bytes",
                where=source.where,
                why="read as uint16, every second id is 0",
                hint="--dtype uint32",
            )

    def pieces(self) -> Iterator[Piece]:
        """Yield the ids of all documents."""
        self.num_empty = 0
        if self._index is not None:
            yield from self._by_index(self._index)
            return
        size, itemsize = self.num_tokens, self.dtype.itemsize
        parts = (
            (self._ids[at : at + PIECE_TOKENS], lambda places, at=at: (at + places) * itemsize)
            for at in range(0, size, PIECE_TOKENS)
        )
        yield from split_after(self._eos_id, parts)

    def _by_index(self, index: Path) -> Iterator[Piece]:
        """Yield documents that end where datatrove's index says: u64, in ids, without a 0."""
        if index.stat().st_size % 8:
            raise damaged(index, f"{index.stat().st_size} bytes are no whole number of 8")
        all_ends = mapped(index, np.dtype("<u8"))
        done = 0
        for start in range(0, len(all_ends), AT_ONCE):
            found = all_ends[start : start + AT_ONCE]
            if int(found.max()) > self.num_tokens:
                why = f"a document ends at id {found.max()}; the file has {self.num_tokens} ids"
                raise damaged(index, why)
            ends = found.astype(np.int64)
            begins = np.append(done, ends[:-1])
            if (ends < begins).any():
                raise damaged(index, f"a document after number {start} ends before it begins")
            has_ids = ends > begins
            self.num_empty += int((~has_ids).sum())
            begins, ends, first = begins[has_ids], ends[has_ids], done
            done = int(ends[-1]) if len(ends) else done
            yield from gathered(
                self._ids, begins, ends - begins, ends - first, begins * self.dtype.itemsize
            )
        if done != self.num_tokens:
            why = f"its last document ends at id {done}; the file has {self.num_tokens} ids"
            raise damaged(index, why)


def datatrove_dtype(metadata: Path) -> np.dtype[np.integer] | None:
    """Return the dtype that datatrove noted in `.ds.metadata`; None if it did not."""
    if not metadata.is_file():
        return None
    with open(metadata, "rb") as file:
        found = _TOKEN_SIZE.match(file.read(1 << 16))
    if found is None or found[1] not in (b"2", b"4"):
        raise damaged(metadata, "its first line does not end with the bytes of an id, 2 or 4")
    return np.dtype(f"<u{found[1].decode()}")
