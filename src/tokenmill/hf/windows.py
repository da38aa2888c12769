"""Cut documents into rows of one length, with padding and labels, a batch at a time.

The windows are those of `truncate` in `tokenizers` with a stride (which is the overlap), as
`return_overflowing_tokens` gives them. Of [1 2 3 4 5], 4 at a time with an overlap of 2:

    from the left     [1 2 3 4] [3 4 5]      up to the first window that reaches the end
    from the right    [2 3 4 5] [1 2 3]      truncation_side="left": up to the one that begins at 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.encode.boundaries import enclose_documents, offsets_from_lengths
from tokenmill.hf.columns import RowColumns
from tokenmill.load.rows.assembly import BOS, EOS, IGNORE_INDEX, REAL, Rules, fill

BLOCK_CELLS = 1 << 16
"""Rows are filled in blocks that fit in the cache of a core."""


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

    def num_windows(self, lengths: Int64Array) -> Int64Array:
        """The number of windows of documents with these lengths; an empty document has none.

        `lengths` do not count the `eos_id` that is appended.
        """
        if self.eos_id is not None:
            lengths = np.where(lengths > 0, lengths + 1, 0)
        step = self.content_length - self.overlap
        further = -(-np.maximum(lengths - self.content_length, 0) // step)
        return np.where(lengths > 0, 1 + further, 0)

    def num_cut(self, lengths: Int64Array) -> int:
        """How many documents of these lengths are longer than a row."""
        return int(np.count_nonzero(lengths + (self.eos_id is not None) > self.content_length))

    def cut(self, tokens: TokenBatch) -> Windows:
        """The windows of all documents, document by document."""
        counts = self.num_windows(tokens.lengths)
        if self.eos_id is not None:
            tokens = _with_eos(tokens, self.eos_id)
            counts = counts[counts > 0]
        documents = np.repeat(np.arange(len(counts)), counts)
        numbers = np.arange(len(documents)) - np.repeat(offsets_from_lengths(counts)[:-1], counts)
        moved = numbers * (self.content_length - self.overlap)
        first, end = tokens.offsets[documents], tokens.offsets[documents + 1]
        if self.truncates_left:
            stops = end - moved
            starts = np.maximum(stops - self.content_length, first)
        else:
            starts = first + moved
            stops = np.minimum(starts + self.content_length, end)
        ids = np.ascontiguousarray(tokens.ids, np.uint32)
        return Windows(self, ids, starts, stops, starts > first)

    def enclosed(self, tokens: TokenBatch) -> TokenBatch:
        """The documents with tokens, each surrounded by the special tokens."""
        if self.eos_id is not None:
            tokens = _with_eos(tokens, self.eos_id)
        lengths = tokens.lengths[tokens.lengths > 0]
        around = len(self.prefix) + len(self.suffix)
        if not around:
            return TokenBatch(tokens.ids, offsets_from_lengths(lengths))
        offsets = offsets_from_lengths(lengths + around)
        ids = np.empty(int(offsets[-1]), np.uint32)
        is_own = np.ones(len(ids), np.bool_)
        for i, token in enumerate(self.prefix):
            ids[offsets[:-1] + i], is_own[offsets[:-1] + i] = token, False
        for i, token in enumerate(self.suffix[::-1]):
            ids[offsets[1:] - 1 - i], is_own[offsets[1:] - 1 - i] = token, False
        ids[is_own] = tokens.ids
        return TokenBatch(ids, offsets)

    def rows(self, tokens: TokenBatch) -> RowColumns:
        """All rows of some documents at once."""
        windows = self.cut(tokens)
        rows = RowColumns.empty(len(windows), self.context_length)
        windows.fill(rows, 0)
        return rows


def _with_eos(tokens: TokenBatch, eos_id: int) -> TokenBatch:
    """The documents with tokens, each ending with `eos_id`."""
    starts = tokens.offsets[:-1][tokens.lengths > 0]
    documents = TokenBatch(tokens.ids, np.append(starts, tokens.offsets[-1]))
    ids, lengths = enclose_documents(documents, (), eos_id, np.dtype(np.uint32))
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
            place = slice(first + start, first + start + len(part))
            self._fill(part, self.starts[place], self.stops[place])
            if self.rule.overlap and not self.rule.overlap_in_loss:
                self._leave_out_repeated(part.labels, place)

    def _leave_out_repeated(self, labels: npt.NDArray[np.integer], place: slice) -> None:
        """Remove the labels of tokens that have one in another window."""
        rule = self.rule
        lengths, repeats = (self.stops - self.starts)[place], self.repeats[place]
        firsts = len(rule.prefix) + (
            rule.content_length - lengths if rule.pads_left else 0 * lengths
        )
        columns = firsts[repeats, None] + np.arange(rule.overlap)
        labels[np.flatnonzero(repeats)[:, None], columns] = IGNORE_INDEX

    def _fill(self, rows: RowColumns, starts: Int64Array, stops: Int64Array) -> None:
        """Fill each row with one window as a segment of its own."""
        rule, lengths = self.rule, stops - starts
        segments = np.zeros((5, len(rows)), np.int64)
        segments[0], segments[4] = np.arange(len(rows)), lengths
        placed = np.full((2, len(rows)), BOS | EOS)
        placed[0] = rule.content_length - lengths if rule.pads_left else 0
        found = np.stack([lengths, starts])
        table = np.array([[self.ids.ctypes.data, 0, len(self.ids), 0]])
        before, after = np.array(rule.prefix, np.int64), np.array(rule.suffix, np.int64)
        rules = Rules(before, after, rule.pad_id, own_labels=False)
        ids, flags = rows.input_ids, rows.flags
        fill((ids, ids, flags), segments, placed, found, table, np.empty(0, np.uint32), rules)
        rows.labels[:] = ids
        np.copyto(rows.labels, IGNORE_INDEX, where=flags & REAL == 0)
