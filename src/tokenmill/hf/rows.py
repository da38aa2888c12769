"""Cut documents into rows of one length with padding and labels, or pack them into rows.

The windows are those of `truncate` in `tokenizers` with a stride (which is the overlap), as
`return_overflowing_tokens` gives them. Of [1 2 3 4 5], 4 at a time with an overlap of 2:

    from the left     [1 2 3 4] [3 4 5]      up to the first window that reaches the end
    from the right    [2 3 4 5] [1 2 3]      truncation_side="left": up to the one that begins at 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import InternalError, UserError
from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.core.records import Sequences as PackedSequences
from tokenmill.encode.boundaries import enclose_documents, join_batches, offsets_from_lengths
from tokenmill.hf.columns import RowColumns, RowSource
from tokenmill.kernels.rows import (
    BOS,
    EOS,
    IGNORE_INDEX,
    NO_TOKENS,
    REAL,
    Rules,
    assemble,
    fill,
)
from tokenmill.packing.options import PackOptions
from tokenmill.packing.window import Window, pack_window

BLOCK_CELLS = 1 << 16
"""Rows are filled in blocks that fit in the cache of a core."""
WINDOW_SEQUENCES = 10_000
WINDOW_TOKENS = 1 << 24
"""Documents of a window are packed together. It ends at the document that brings it to this many
tokens, or to 10,000 rows if these are fewer: 64 MiB of ids. It depends on nothing but the texts."""
LEAST_SEQUENCES = 64
"""The fewest rows of a window: for a long context, fewer would pack badly."""


@dataclass(frozen=True, slots=True)
class WindowRule:
    """How the ids of a document become rows."""

    context_length: int
    overlap: int
    pad_id: int
    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    pads_left: bool = False
    truncates_left: bool = False
    eos_id: int | None = None
    """Appended to the ids of each document, so it is in the document's last window."""
    overlap_in_loss: bool = True
    """Whether tokens shared by two windows have a label in both."""

    def __post_init__(self) -> None:
        if self.overlap >= self.content_length:
            around = len(self.prefix) + len(self.suffix)
            raise UserError(
                f"an overlap of {self.overlap} leaves no room for new tokens",
                why=f"a row of {self.context_length} holds {self.content_length} tokens of a "
                f"document, and {around} special tokens around them",
                hint="lower overlap, or raise context_length",
            )

    @property
    def content_length(self) -> int:
        """Tokens of a document that a row can hold."""
        return self.context_length - len(self.prefix) - len(self.suffix)

    @property
    def end(self) -> tuple[int, ...]:
        """The token that is appended to documents, if there is one."""
        return () if self.eos_id is None else (self.eos_id,)

    def cut(self, tokens: TokenBatch) -> Windows:
        """The windows of all documents with tokens, document by document."""
        tokens = _enclosed(tokens, (), self.end)
        step = self.content_length - self.overlap
        counts = 1 - (-np.maximum(tokens.lengths - self.content_length, 0) // step)
        documents = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(documents)) - np.repeat(offsets_from_lengths(counts)[:-1], counts)
        first, end = tokens.offsets[documents], tokens.offsets[documents + 1]
        if self.truncates_left:
            stops = end - numbers * step
            starts = np.maximum(stops - self.content_length, first)
        else:
            starts = first + numbers * step
            stops = np.minimum(starts + self.content_length, end)
        ids = np.ascontiguousarray(tokens.ids, np.uint32)
        return Windows(self, ids, starts, stops, starts > first)

    def enclosed(self, tokens: TokenBatch) -> TokenBatch:
        """The documents with tokens, each surrounded by the special tokens."""
        return _enclosed(tokens, self.prefix, (*self.end, *self.suffix))


def _enclosed(tokens: TokenBatch, before: Sequence[int], after: Sequence[int]) -> TokenBatch:
    """The documents with tokens, with `before` and `after` around each."""
    tokens = tokens.without_empty()
    if not before and not after:
        return tokens
    ids, lengths = enclose_documents(tokens, before, after, np.uint32)
    return TokenBatch(ids.astype(np.uint32, copy=False), offsets_from_lengths(lengths))


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of a batch; window i is `ids[starts[i]:stops[i]]`."""

    rule: WindowRule
    ids: UInt32Array
    """Must be contiguous: compiled code reads them by address."""
    starts: Int64Array
    stops: Int64Array
    repeats: npt.NDArray[np.bool_]
    """Whether the first tokens of a window repeat those of the previous window."""

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_tokens(self) -> int:
        """Tokens of all windows, including special tokens."""
        around = len(self.rule.prefix) + len(self.rule.suffix)
        return int((self.stops - self.starts).sum()) + around * len(self)

    def fill(self, rows: RowColumns, first: int) -> None:
        """Fill `rows` with windows, from number `first` on."""
        block = max(BLOCK_CELLS // self.rule.context_length, 1)
        for start in range(0, len(rows), block):
            part = rows[start : start + block]
            self._fill(part, slice(first + start, first + start + len(part)))

    def _fill(self, rows: RowColumns, place: slice) -> None:
        """Fill each row with one window as a segment of its own."""
        rule, starts = self.rule, self.starts[place]
        lengths = self.stops[place] - starts
        segments = np.zeros((5, len(rows)), np.int64)
        segments[0], segments[4] = np.arange(len(rows)), lengths
        columns = rule.content_length - lengths if rule.pads_left else 0 * lengths
        placed = np.stack([columns, np.full(len(rows), BOS | EOS)])
        before, after = np.array(rule.prefix, np.int64), np.array(rule.suffix, np.int64)
        rules = Rules(before, after, rule.pad_id, own_labels=False)
        arrays = rows.input_ids, rows.input_ids, rows.flags
        found, table = np.stack([lengths, starts]), _table(self.ids)
        fill(arrays, segments, placed, found, table, np.empty(0, np.uint32), rules)
        rows.labels[:] = rows.input_ids
        np.copyto(rows.labels, IGNORE_INDEX, where=rows.flags & REAL == 0)
        if rule.overlap and not rule.overlap_in_loss:
            repeats = np.flatnonzero(self.repeats[place])
            cells = (len(rule.prefix) + columns)[repeats, None] + np.arange(rule.overlap)
            rows.labels[repeats[:, None], cells] = IGNORE_INDEX


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Packed documents. The first token of each segment has no label: nothing predicts it."""

    documents: TokenBatch
    """Contiguous ids: compiled code reads them from their address on."""
    sequences: PackedSequences
    rules: Rules

    @staticmethod
    def of(tokens: TokenBatch, rule: WindowRule, options: PackOptions) -> PackedRows:
        """Pack documents together.

        Raises:
            InternalError: tokens are missing in the rows, or there are too many.
        """
        lengths = tokens.lengths.astype(np.int32)
        packed = pack_window(Window(lengths, np.arange(len(lengths), dtype=np.int32)), options)
        sequences, books = packed.sequences, packed.books
        kept = int(sequences.segments.lengths.sum(dtype=np.int64)) - books.repeated_tokens
        if kept != len(tokens.ids) or books.lost_tokens:
            why = f"{len(tokens.ids)} tokens, of which {kept} are in rows"
            raise InternalError("packing lost tokens", why=why)
        ids = np.ascontiguousarray(tokens.ids, np.uint32)
        overlap = 0 if rule.overlap_in_loss else options.overlap
        rules = Rules(NO_TOKENS, NO_TOKENS, rule.pad_id, overlap=overlap)
        return PackedRows(TokenBatch(ids, tokens.offsets), sequences, rules)

    def __len__(self) -> int:
        return len(self.sequences)

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
        found = np.stack([self.documents.lengths[documents], self.documents.offsets[documents]])
        arrays, table = (rows.input_ids, rows.labels, rows.flags), _table(self.documents.ids)
        problem, _ = assemble(arrays, segments, found, table, np.empty(0, np.uint32), self.rules)
        if problem:
            raise InternalError("a row was packed with more tokens than it holds")


def _table(ids: UInt32Array) -> Int64Array:
    """The table of shards for compiled code, with ids in memory as the only one."""
    return np.array([[ids.ctypes.data, 0, len(ids), 0]])


class Place(msgspec.Struct, frozen=True):
    """The position of the first document of a portion, from which a killed run resumes."""

    document: int = 0
    """Number of the first document of a batch, including null texts;"""
    skipped: int = 0
    """and the number of documents of this batch that an earlier portion holds."""
    counts: dict[str, int] = {}
    """The counts of the summary before this batch."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Rows to make later, in the thread that writes them."""

    place: Place
    make: Callable[[], RowSource]


class Portions:
    """Groups documents into portions: batches to cut, or windows to pack when they are full."""

    def __init__(self, rule: WindowRule, options: PackOptions | None, skipped: int = 0) -> None:
        """Begin after `skipped` documents with tokens, which an earlier run has packed."""
        self._rule, self._options, self._skipped = rule, options, skipped
        length = rule.context_length
        most = min(WINDOW_SEQUENCES * length, WINDOW_TOKENS)
        self._limit = max(LEAST_SEQUENCES * length, most)
        self._parts: list[TokenBatch] = []
        self._num_tokens = 0
        self._place = Place()

    def add(self, tokens: TokenBatch, place: Place) -> Iterator[Portion]:
        """Return the portions that a batch fills."""
        if self._options is None:
            yield Portion(place, lambda: self._rule.cut(tokens))
            return
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
                yield from self.finish()

    def finish(self) -> Iterator[Portion]:
        """Return the documents that are held back, as the last window."""
        if self._parts and self._options is not None:
            parts, self._parts, self._num_tokens = self._parts, [], 0
            rule, options = self._rule, self._options
            yield Portion(self._place, lambda: PackedRows.of(join_batches(parts), rule, options))
