"""What flows between the stages: documents, token ids, and the segments that make up sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

Int64Array = npt.NDArray[np.int64]
Int32Array = npt.NDArray[np.int32]
UInt32Array = npt.NDArray[np.uint32]

Advance = Callable[[str, int, int], None]
"""How long work tells how far it has come: called with (stage, done, total)."""

CharSpans = list[tuple[int, int]]
"""Half-open [start, stop) character ranges of one document."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """One record that was not read, with its place and its reason."""

    source: int
    position: int
    """Byte offset of the record in its (decompressed) source, or its row number."""
    num_bytes: int
    reason: str
    detail: str
    record: bytes
    """The record as it was found; kept whole up to a limit that the writer of `rejected/` sets."""


@dataclass(slots=True)
class DocumentBatch:
    """Documents as read, in source order, with what was set aside between them."""

    source: int
    texts: list[str]
    positions: Int64Array
    """Shape (n,): byte offset of each record in its (decompressed) source, or row number; texts of
    one record have the same.
    """
    record_bytes: Int64Array
    """Shape (n,): bytes that each record takes in the books (a line with its end, or a text); 0
    for the texts of a line after its first.
    """
    ids: list[str | None] | None = None
    columns: dict[str, list[str | None]] = field(default_factory=dict)
    no_loss: list[CharSpans] | None = None
    special_strings: Int64Array | None = None
    """Shape (n,): special tokens in what each text was rendered from; None: only texts tell."""
    rejected: list[Rejection] = field(default_factory=list)
    blank_bytes: int = 0
    bom_bytes: int = 0

    @property
    def num_further(self) -> int:
        """Documents beyond the first of their record."""
        return int(np.count_nonzero(np.diff(self.positions) == 0))

    def head(self, count: int) -> DocumentBatch:
        """The first `count` documents, with what was set aside before the one that follows."""
        if count >= len(self.texts):
            return self
        first = self.select(np.arange(len(self.texts)) < count)
        stop = int(self.positions[count])
        first.rejected = [item for item in self.rejected if item.position < stop]
        first.blank_bytes, first.bom_bytes = self.blank_bytes, self.bom_bytes
        return first

    def select(self, keep: npt.NDArray[np.bool_]) -> DocumentBatch:
        """The documents where `keep` (shape (n,)) is true; rejections and counters stay behind."""
        indices = np.flatnonzero(keep).tolist()

        def pick(values: list[T]) -> list[T]:
            return [values[i] for i in indices]

        return DocumentBatch(
            source=self.source,
            texts=pick(self.texts),
            positions=self.positions[keep],
            record_bytes=self.record_bytes[keep],
            ids=None if self.ids is None else pick(self.ids),
            columns={name: pick(values) for name, values in self.columns.items()},
            no_loss=None if self.no_loss is None else pick(self.no_loss),
            special_strings=None if self.special_strings is None else self.special_strings[keep],
        )


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Token ids of several documents, one after another."""

    ids: UInt32Array
    """Shape (num_tokens,)."""
    offsets: Int64Array
    """Shape (num_documents + 1,): document i is `ids[offsets[i]:offsets[i + 1]]`."""

    @property
    def lengths(self) -> Int64Array:
        """Shape (num_documents,): tokens of each document."""
        return np.diff(self.offsets)

    def head(self, count: int) -> TokenBatch:
        """The first `count` documents."""
        return TokenBatch(self.ids[: self.offsets[count]], self.offsets[: count + 1])

    def split(self, counts: Sequence[int]) -> Iterator[TokenBatch]:
        """Yield the next `count` documents for each of `counts`."""
        first = 0
        for count in counts:
            offsets = self.offsets[first : first + count + 1]
            yield TokenBatch(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])
            first += count

    def without_empty(self) -> TokenBatch:
        """The documents that have tokens."""
        return TokenBatch(self.ids, self.offsets[np.diff(self.offsets, prepend=-1) > 0])


@dataclass(frozen=True, slots=True)
class Segments:
    """Parts of documents: segment i is tokens [starts[i], starts[i] + lengths[i]) of its document.

    All arrays have shape (n,). Documents are numbered within a window of consecutive shards.
    """

    documents: Int32Array
    starts: Int32Array
    lengths: Int32Array

    def __len__(self) -> int:
        return len(self.documents)

    @staticmethod
    def joined(parts: list[Segments]) -> Segments:
        """The segments of several lists, one after another."""
        return Segments(
            np.concatenate([part.documents for part in parts]),
            np.concatenate([part.starts for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )

    def take(self, indices: npt.NDArray[np.integer]) -> Segments:
        """The segments at `indices`, in that order."""
        return Segments(self.documents[indices], self.starts[indices], self.lengths[indices])


@dataclass(frozen=True, slots=True)
class Sequences:
    """Training rows: sequence i is segments [offsets[i], offsets[i + 1]), one after another."""

    segments: Segments
    offsets: Int64Array
    """Shape (num_sequences + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1
