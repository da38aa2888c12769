"""Group encoded documents into portions that become rows: batches, or windows to pack.

A portion knows from which document on its rows are made, so a run that was killed resumes there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tokenmill.core.errors import InternalError
from tokenmill.core.records import Int64Array, Sequences, TokenBatch, UInt32Array
from tokenmill.encode.boundaries import join_batches
from tokenmill.hf.columns import RowColumns
from tokenmill.hf.windows import WindowRule
from tokenmill.load.rows.assembly import NO_TOKENS, Rules, assemble
from tokenmill.pack.options import PackOptions
from tokenmill.pack.window import Window, pack_window

WINDOW_SEQUENCES = 10_000
WINDOW_TOKENS = 1 << 24
"""Documents of a window are packed together. It ends at the document that brings it to this many
tokens, or to 10,000 rows if these are fewer: 64 MiB of ids. It depends on nothing but the texts."""
LEAST_SEQUENCES = 64
"""The fewest rows of a window: for a long context, fewer would pack badly."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of the first document of a portion."""

    document: int
    """Number of the first document of a batch, including null texts;"""
    skipped: int = 0
    """and the number of documents of this batch that an earlier portion holds."""
    counts: dict[str, int] = field(default_factory=dict)
    """The counts of the summary before this batch."""


class RowSource(Protocol):
    """A source of rows."""

    def __len__(self) -> int:
        """The number of rows."""
        ...

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows, without padding."""
        ...

    def fill(self, rows: RowColumns, first: int) -> None:
        """Fill `rows` with rows of this source, from number `first` on."""
        ...


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows to make later, in the thread that writes them."""

    place: Place
    make: Callable[[], RowSource]


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Rows made by a user's function."""

    rows: RowColumns

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return self.rows.num_tokens

    def fill(self, rows: RowColumns, first: int) -> None:
        """Copy."""
        given = self.rows[first : first + len(rows)]
        for own, others in (
            (rows.input_ids, given.input_ids),
            (rows.labels, given.labels),
            (rows.flags, given.flags),
        ):
            own[:] = others


class WindowPortions:
    """Portions of documents that are each cut into windows."""

    def __init__(self, rule: WindowRule) -> None:
        self._rule = rule

    def add(self, tokens: TokenBatch, place: Place) -> Iterator[Portion]:
        """The portion of a batch."""
        yield Portion(place, lambda: self._rule.cut(tokens))

    def finish(self) -> Iterator[Portion]:
        """Return nothing: no documents are held back."""
        yield from ()


class PackedPortions:
    """Portions of documents that share rows: a window is packed when it is full."""

    def __init__(self, rule: WindowRule, options: PackOptions, skipped: int = 0) -> None:
        """Begin after `skipped` documents with tokens, which an earlier run has done."""
        self._rule, self._options, self._skipped = rule, options, skipped
        length = options.length
        few, many = LEAST_SEQUENCES * length, WINDOW_SEQUENCES * length
        self._limit = max(few, min(many, WINDOW_TOKENS))
        self._parts: list[TokenBatch] = []
        self._num_tokens = 0
        self._place = Place(0)

    def add(self, tokens: TokenBatch, place: Place) -> Iterator[Portion]:
        """Return the windows that a batch fills."""
        documents = self._rule.enclosed(tokens)
        offsets = documents.offsets
        start = min(self._skipped, len(offsets) - 1)
        self._skipped -= start
        while start < len(offsets) - 1:
            if not self._parts:
                self._place = Place(place.document, start, place.counts)
            full = offsets[start] + self._limit - self._num_tokens
            stop = min(int(np.searchsorted(offsets, full)), len(offsets) - 1)
            part = documents.ids[offsets[start] : offsets[stop]]
            self._parts.append(TokenBatch(part, offsets[start : stop + 1] - offsets[start]))
            self._num_tokens += len(part)
            start = stop
            if self._num_tokens >= self._limit:
                yield self._closed()

    def finish(self) -> Iterator[Portion]:
        """Return the last window."""
        if self._parts:
            yield self._closed()

    def _closed(self) -> Portion:
        parts, self._parts, self._num_tokens = self._parts, [], 0
        rule, options = self._rule, self._options
        return Portion(self._place, lambda: PackedRows.of(join_batches(parts), rule, options))


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Packed documents. The first token of each segment has no label: nothing predicts it."""

    ids: UInt32Array
    """Contiguous: compiled code reads them from their address on."""
    offsets: Int64Array
    sequences: Sequences
    rules: Rules

    @staticmethod
    def of(documents: TokenBatch, rule: WindowRule, options: PackOptions) -> PackedRows:
        """Pack documents together.

        Raises:
            InternalError: tokens are missing in the rows, or there are too many.
        """
        lengths = documents.lengths.astype(np.int32)
        packed = pack_window(Window(lengths, np.arange(len(lengths), dtype=np.int32)), options)
        sequences, books = packed.sequences, packed.books
        kept = int(sequences.segments.lengths.sum(dtype=np.int64)) - books.repeated_tokens
        if kept != len(documents.ids) or books.lost_tokens:
            why = f"{len(documents.ids)} tokens, of which {kept} are in rows"
            raise InternalError("packing lost tokens", why=why)
        ids = np.ascontiguousarray(documents.ids, np.uint32)
        overlap = 0 if rule.overlap_in_loss else options.overlap
        rules = Rules(NO_TOKENS, NO_TOKENS, rule.pad_id, overlap=overlap)
        return PackedRows(ids, documents.offsets, sequences, rules)

    def __len__(self) -> int:
        return len(self.sequences.offsets) - 1

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows, without padding."""
        return int(self.sequences.segments.lengths.sum(dtype=np.int64))

    def fill(self, rows: RowColumns, first: int) -> None:
        """Fill `rows` with sequences, from number `first` on."""
        offsets = self.sequences.offsets[first : first + len(rows) + 1]
        part = slice(int(offsets[0]), int(offsets[-1]))
        chosen = self.sequences.segments
        documents = np.asarray(chosen.documents[part], np.int64)
        segments = np.zeros((5, len(documents)), np.int64)
        segments[0] = np.repeat(np.arange(len(rows)), np.diff(offsets))
        segments[2] = documents
        segments[3], segments[4] = chosen.starts[part], chosen.lengths[part]
        found = np.stack([np.diff(self.offsets)[documents], self.offsets[documents]])
        table = np.array([[self.ids.ctypes.data, 0, len(self.ids), 0]])
        arrays = rows.input_ids, rows.labels, rows.flags
        like = np.empty(0, np.uint32)
        problem, _ = assemble(arrays, segments, found, table, like, self.rules)
        if problem:
            raise InternalError("a row was packed with more tokens than it holds")
