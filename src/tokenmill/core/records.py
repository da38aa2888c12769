"""The data that stages exchange: documents, token ids, and the segments of sequences."""

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
UInt64Array = npt.NDArray[np.uint64]
UInt8Array = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

Advance = Callable[[str, int, int], None]
"""A progress callback, called with (stage, done, total)."""

CharSpans = list[tuple[int, int]]
"""Half-open [start, stop) character ranges of one document."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A rejected record, with its position and the reason."""

    source: int
    position: int
    """Byte offset of the record in its (decompressed) source, or its row number."""
    num_bytes: int
    reason: str
    detail: str
    record: bytes
    """The raw record; the writer of `rejected/` truncates long ones."""


@dataclass(slots=True)
class DocumentBatch:
    """Documents in source order, with the records that were rejected between them."""

    source: int
    texts: list[str]
    positions: Int64Array
    """Shape (n,): byte offset of each record in its (decompressed) source, or row number. Texts of
    one record have the same position.
    """
    record_bytes: Int64Array
    """Shape (n,): bytes that count as read for each record (a line with its end, or a text); 0 for
    all texts of a record after its first.
    """
    ids: list[str | None] | None = None
    columns: dict[str, list[str | None]] = field(default_factory=dict)
    no_loss: list[CharSpans] | None = None
    special_strings: Int64Array | None = None
    """Shape (n,): special tokens in the record of each text; None if only the text is known."""
    rejected: list[Rejection] = field(default_factory=list)
    blank_bytes: int = 0
    bom_bytes: int = 0

    @property
    def num_further(self) -> int:
        """Number of documents that are not the first of their record."""
        return int(np.count_nonzero(np.diff(self.positions) == 0))

    def head(self, count: int) -> DocumentBatch:
        """Return the first `count` documents, with the records rejected before the next one."""
        if count >= len(self.texts):
            return self
        first = self.select(np.arange(len(self.texts)) < count)
        stop = int(self.positions[count])
        first.rejected = [item for item in self.rejected if item.position < stop]
        first.blank_bytes, first.bom_bytes = self.blank_bytes, self.bom_bytes
        return first

    def select(self, keep: npt.NDArray[np.bool_]) -> DocumentBatch:
        """Return the documents for which `keep` (shape (n,)) is true, without rejected records."""
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
    """Concatenated token ids of several documents."""

    ids: UInt32Array
    """Shape (num_tokens,)."""
    offsets: Int64Array
    """Shape (num_documents + 1,): document i is `ids[offsets[i]:offsets[i + 1]]`."""

    @property
    def lengths(self) -> Int64Array:
        """Shape (num_documents,): number of tokens of each document."""
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
        """Return the batch without documents that have no tokens."""
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
    """Packed sequences: sequence i consists of segments [offsets[i], offsets[i + 1])."""

    segments: Segments
    offsets: Int64Array
    """Shape (num_sequences + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1
