"""Training rows from a plan and its dataset: token ids with everything that says how to use them.

A segment is what attention may not leave and where positions begin again at 0; padding is one
segment of its own. Labels come in one of two conventions, which must not be mixed up:

    aligned   labels[i] belongs to input_ids[i]; the model shifts (Hugging Face)
    next      labels[i] is the token after input_ids[i]; nobody shifts (torchtitan, Megatron)

A document 7 8 9 5 6 cut after 9, with a second document 3 4 2 and one token of padding (0):

    input_ids     7  8  9  3  4  2  0
    aligned       -  8  9  -  4  2  -     the first token of a segment has nothing to go by
    next          8  9  5  4  2  -  -     where the document goes on, its next token is known
    position_ids  0  1  2  0  1  2  0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.compiled import compiled
from tokenmill.errors import UserError, VerificationError
from tokenmill.pack.long_documents import set_at_cuts
from tokenmill.pack.options import PackOptions, options_of_plan
from tokenmill.pack.window import row_lengths, sums
from tokenmill.records import Int64Array
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.plan import Plan

Labels = Literal["aligned", "next"]
BoolArray = npt.NDArray[np.bool_]


REAL, RESTART, TARGET = np.uint8(1), np.uint8(2), np.uint8(4)
"""What is true of a token of a row: not padding; positions begin at 0; there is a label."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of equal length; arrays have shape (num_rows, row_length)."""

    ids: npt.NDArray[np.integer]
    """Token ids, in the dtype of the dataset."""
    labels: npt.NDArray[np.integer]
    """Token ids; meaningful where `has_label`. The array `ids` itself where labels are aligned."""
    flags: npt.NDArray[np.uint8]
    """Sums of REAL, RESTART and TARGET."""

    @property
    def aligned(self) -> bool:
        """Whether `labels[i]` belongs to `ids[i]`, or is the token after it."""
        return self.labels is self.ids

    @property
    def has_label(self) -> BoolArray:
        """Where there is a label."""
        return (self.flags & TARGET) > 0

    @property
    def restarts(self) -> BoolArray:
        """Where positions begin at 0: at each segment, and at padding."""
        return (self.flags & RESTART) > 0

    @property
    def real(self) -> BoolArray:
        """False for padding."""
        return (self.flags & REAL) > 0


@dataclass(frozen=True, slots=True)
class _Layout:
    """The segments of some rows and where they go; all arrays have shape (num_segments,)."""

    rows: Int64Array
    columns: Int64Array
    documents: Int64Array
    starts: Int64Array
    lengths: Int64Array
    document_lengths: Int64Array
    kinds: Int64Array
    """Sums of BOS, EOS, JOINED and GOES_ON."""
    shards: Int64Array


BOS, EOS, JOINED, GOES_ON = 1, 2, 4, 8
"""What is true of a segment: a token is set before, or after it; it is one with the segment
before; its document goes on behind it."""


MAPPED_SHARDS = 64


class RowReader:
    """Assembles rows of a plan.

    Raises:
        UserError: the plan is of another dataset.
    """

    def __init__(self, dataset: Dataset, plan: Plan, labels: Labels = "aligned") -> None:
        plan.check_dataset(dataset)
        self.dataset, self.plan, self._labels = dataset, plan, labels
        self.options = options_of_plan(plan.manifest.options, str(plan.folder))
        tokenizer = dataset.manifest.tokenizer
        self._eos = tokenizer.eos_id
        self._bos = tokenizer.prefix_ids[0] if tokenizer.prefix_ids else tokenizer.eos_id
        self.pad_id = self._eos if tokenizer.pad_id is None else tokenizer.pad_id
        self.dtype = np.dtype(dataset.manifest.token_dtype)
        counts = [shard.entry.documents for shard in dataset.shards]
        self._first_documents = offsets_from_lengths(counts)
        self._recent: dict[int, Shard] = {}
        self._spans: tuple[Shard | None, list[Any] | None] = (None, None)

    def read(self, sequences: Int64Array, row_length: int) -> Rows:
        """The rows of `sequences`, shape (num_rows,), each padded to `row_length` tokens.

        Raises:
            UserError: there is no such sequence.
            VerificationError: a segment does not lie inside its document, or its row.
        """
        if len(sequences) and not (sequences.min() >= 0 and sequences.max() < len(self.plan)):
            why = f"the plan has {len(self.plan)} sequences, counted from 0"
            raise UserError("there is no such sequence", where=str(self.plan.folder), why=why)
        shape = (len(sequences), row_length)
        ids = np.full(shape, self.pad_id, self.dtype)
        labels = ids if self._labels == "aligned" else np.zeros(shape, self.dtype)
        flags = np.zeros(shape, np.uint8)
        rows = Rows(ids, labels, flags)
        layout = self._layout(sequences, row_length)
        for number, places in self._by_shard(layout):
            shard = self._mapped(number)
            local = layout.documents[places] - self._first_documents[number]
            shard_ids = np.asarray(shard.ids)
            firsts = shard.index[1][local] // shard_ids.itemsize
            stops = firsts + layout.document_lengths[places]
            if (firsts < 0).any() or (stops > len(shard_ids)).any():
                raise VerificationError(
                    "a token index leads out of its tokens",
                    where=str(shard.path("idx")),
                    hint="tokenmill verify says what else is damaged",
                )
            sources = firsts + layout.starts[places]
            at = (layout.rows[places], layout.columns[places])
            segments = (layout.starts[places], layout.lengths[places], layout.kinds[places])
            _copy((ids, flags), shard_ids, sources, at, segments, (self._bos, self._eos))
            _label((labels, flags), shard_ids, sources, at, segments, self._label_rules)
            self._mask_no_loss(rows, layout, places, shard, local)
        _start_padding(flags)
        return rows

    def _mapped(self, number: int) -> Shard:
        """A shard; of those used before, a number are kept mapped that no limit on files meets."""
        self._recent.pop(number, None)
        self._recent[number] = self.dataset.shards[number]
        if len(self._recent) > MAPPED_SHARDS:
            self._recent.pop(next(iter(self._recent))).release()
        return self._recent[number]

    @cached_property
    def _label_rules(self) -> tuple[bool, bool, int]:
        """Labels are the next tokens; what follows a BOS is a target; tokens of overlap masked."""
        options = self.options
        is_next = self._labels == "next"
        # What a BOS precedes is the target of the segment before, if there is one.
        after_bos = not is_next or options.long_documents == "keep-end"
        masks = options.long_documents == "sliding-window" and not options.overlap_in_loss
        return is_next, after_bos, options.overlap if masks else 0

    def _layout(self, sequences: Int64Array, row_length: int) -> _Layout:
        plan, options = self.plan, self.options
        first, last = plan.offsets[sequences], plan.offsets[sequences + 1]
        counts = last - first
        if (first < 0).any() or (counts < 1).any() or (last > len(plan.documents)).any():
            raise self._damaged("its offsets are out of order")
        rows = np.repeat(np.arange(len(sequences)), counts)
        within = np.arange(len(rows)) - np.repeat(offsets_from_lengths(counts)[:-1], counts)
        index = np.repeat(first, counts) + within
        documents = plan.documents[index].astype(np.int64)
        starts = plan.starts[index].astype(np.int64)
        lengths = plan.lengths[index].astype(np.int64)
        if ((documents < 0) | (documents >= self.dataset.num_documents)).any():
            raise self._damaged("it names documents that do not exist")
        if (lengths < 1).any():
            raise self._damaged("a segment has no token")
        shards = np.searchsorted(self._first_documents, documents, side="right") - 1
        document_lengths = self._document_lengths(documents, shards)
        if (starts + lengths > document_lengths).any():
            raise self._damaged("a segment leads out of its document")
        goes_on = starts + lengths < document_lengths
        has_bos, has_eos = set_at_cuts(options)
        bos, eos = has_bos & (starts > 0), has_eos & goes_on
        joined = np.zeros(len(rows), np.bool_)
        if options.long_documents == "keep-both-ends":
            same_document = (documents[1:] == documents[:-1]) & (within[1:] > 0)
            joined[1:] = same_document & (starts[1:] > starts[:-1])
        multiple = options.segment_multiple
        sizes = (lengths + bos + eos + multiple - 1) // multiple * multiple
        places = offsets_from_lengths(sizes)
        columns = places[:-1] - places[offsets_from_lengths(counts)[:-1]][rows]
        if len(rows) and int((columns + sizes).max()) > row_length:
            raise self._damaged(f"a sequence is longer than its row of {row_length} tokens")
        kinds = bos * BOS + eos * EOS + joined * JOINED + goes_on * GOES_ON
        return _Layout(rows, columns, documents, starts, lengths, document_lengths, kinds, shards)

    def _document_lengths(self, documents: Int64Array, shards: Int64Array) -> Int64Array:
        lengths = np.empty(len(documents), np.int64)
        for number in np.unique(shards).tolist():
            inside = shards == number
            local = documents[inside] - self._first_documents[number]
            lengths[inside] = self._mapped(number).index[0][local]
        return lengths

    def _by_shard(self, layout: _Layout) -> Iterator[tuple[int, Int64Array]]:
        """Shards, and the indices of their segments in the order of the shard."""
        if not len(layout.shards):
            return
        order = np.lexsort((layout.documents, layout.shards))
        numbers, firsts = np.unique(layout.shards[order], return_index=True)
        yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)

    def _mask_no_loss(
        self, rows: Rows, layout: _Layout, places: Int64Array, shard: Shard, local: Int64Array
    ) -> None:
        """Take away the labels of tokens that the documents table marks as carrying no loss."""
        spans = self._no_loss(shard)
        if spans is None:
            return
        shift = 0 if self._labels == "aligned" else 1  # a label stands so far before its token
        for place, document in zip(places.tolist(), local.tolist(), strict=True):
            start, length = int(layout.starts[place]), int(layout.lengths[place])
            row = rows.flags[layout.rows[place]]
            has_bos = bool(layout.kinds[place] & BOS)
            column = int(layout.columns[place]) + has_bos
            first_target = 0 if has_bos and self._label_rules[1] else shift
            for span in spans[document] or ():
                first = max(span["start"] - start, first_target)
                stop = min(span["stop"] - start, length + shift)
                row[column + first - shift : column + max(stop, first) - shift] &= ~TARGET

    def _no_loss(self, shard: Shard) -> list[Any] | None:
        """Token ranges without loss of each document, or None; those of one shard are kept."""
        if not self.dataset.manifest.policies.get("read", {}).get("no_loss"):
            return None
        if self._spans[0] is not shard:
            import pyarrow.parquet as pq

            table = pq.read_table(shard.path("parquet"), columns=["no_loss"])
            self._spans = (shard, table.column("no_loss").to_pylist())
        return self._spans[1]

    def _damaged(self, why: str) -> VerificationError:
        hint = "make the plan again: tokenmill pack"
        return VerificationError(
            "a plan does not fit its dataset", where=str(self.plan.folder), why=why, hint=hint
        )


def plan_row_lengths(plan: Plan, options: PackOptions) -> Int64Array:
    """Shape (num_sequences,): tokens of each row of a plan, padding included."""
    if options.packing != "length-buckets":
        return np.full(len(plan), options.row_length, np.int64)
    return row_lengths(sums(plan.lengths, plan.offsets), options)


@compiled
def _copy(
    rows: tuple[npt.NDArray[np.integer], npt.NDArray[np.uint8]],
    ids: npt.NDArray[np.integer],
    sources: Int64Array,
    places: tuple[Int64Array, Int64Array],
    segments: tuple[Int64Array, Int64Array, Int64Array],
    set_at_cuts: tuple[int, int],
) -> None:
    """Copy segments, each from `sources[i]` of `ids` on, with what is set at cuts."""
    for i in range(len(sources)):
        row_ids, row_flags = rows[0][places[0][i]], rows[1][places[0][i]]
        column, length, kind = places[1][i], segments[1][i], segments[2][i]
        begin = column
        if kind & BOS:
            row_ids[column] = set_at_cuts[0]
            row_flags[column] = REAL
            column += 1
        for j in range(length):
            row_ids[column + j] = ids[sources[i] + j]
            row_flags[column + j] = REAL
        if kind & EOS:
            row_ids[column + length] = set_at_cuts[1]
            row_flags[column + length] = REAL
        if not kind & JOINED:
            row_flags[begin] |= RESTART


@compiled
def _label(
    rows: tuple[npt.NDArray[np.integer], npt.NDArray[np.uint8]],
    ids: npt.NDArray[np.integer],
    sources: Int64Array,
    places: tuple[Int64Array, Int64Array],
    segments: tuple[Int64Array, Int64Array, Int64Array],
    rules: tuple[bool, bool, int],
) -> None:
    """Mark the targets of segments; where they are the next tokens, store them as well."""
    is_next, after_bos, overlap = rules
    for i in range(len(sources)):
        row_labels, row_flags = rows[0][places[0][i]], rows[1][places[0][i]]
        start, length, kind = segments[0][i], segments[1][i], segments[2][i]
        column = places[1][i] + (1 if kind & BOS else 0)
        # Token j of the segment is a target unless nothing precedes it, or it is overlap.
        first = 0 if kind & BOS and after_bos else 1
        if start > 0:
            first = max(first, overlap)
        # A document that goes on has one more target: that of the last token.
        stop = length + 1 if is_next and kind & GOES_ON and overlap == 0 else length
        shift = 1 if is_next else 0
        for j in range(first, stop):
            row_flags[column + j - shift] |= TARGET
            if is_next:
                row_labels[column + j - 1] = ids[sources[i] + j]


@compiled
def _start_padding(flags: npt.NDArray[np.uint8]) -> None:
    """Positions begin again where padding does."""
    for row in range(flags.shape[0]):
        for column in range(flags.shape[1]):
            if not flags[row, column] & REAL and (column == 0 or flags[row, column - 1] & REAL):
                flags[row, column] |= RESTART
