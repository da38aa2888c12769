"""Training rows from a plan and its dataset: token ids, labels and flags.

Attention stays inside a segment, and positions start at 0 in each segment. Padding is a segment,
too. Labels follow one of two conventions:

    aligned   labels[i] belongs to input_ids[i]; the model shifts them (Hugging Face)
    next      labels[i] is the token after input_ids[i]; nothing is shifted (torchtitan, Megatron)

A document 7 8 9 5 6 cut after 9, with a second document 3 4 2 and one token of padding (0):

    input_ids     7  8  9  3  4  2  0
    aligned       -  8  9  -  4  2  -     nothing predicts the first token of a segment
    next          8  9  5  4  2  -  -     a cut document still has a next token
    position_ids  0  1  2  0  1  2  0
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.core.records import BoolArray, Int64Array
from tokenmill.kernels.interpreted import for_first_steps, for_steps
from tokenmill.kernels.rows import (
    BOS,
    EOS,
    GOES_ON,
    IGNORE_INDEX,
    PROBLEMS,
    REAL,
    RESTART,
    TARGET,
    Rules,
    assemble,
    locate,
    look_up,
)
from tokenmill.load.rows.block_cache import BlockCache
from tokenmill.load.rows.loss_spans import checked_spans
from tokenmill.load.rows.provenance import Layout
from tokenmill.load.rows.segmentation import Segmentation
from tokenmill.load.rows.shard_maps import ShardMaps
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.plan import Plan
from tokenmill.store.row_format import Labels

SHARDS_KEPT = 64
"""Shards whose ranges without loss stay in memory."""
PLAN_BYTES_CHECKED = 256 << 20
"""A larger plan is not compared with its digests: that would delay the first batch of each rank."""


class Targets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens count in the loss, and how labels are aligned."""

    labels: Labels = "aligned"
    across_documents: Annotated[
        bool, Meta(description="let the last token of a document predict the first of the next")
    ] = False
    without_prefix: Annotated[
        int,
        Meta(
            ge=0, le=2**31, description="exclude the first N tokens of each document from the loss"
        ),
    ] = 0
    overlap_in_loss: Annotated[
        bool | None, Meta(description="count repeated tokens in the loss (None: as planned)")
    ] = None
    loss_spans: Annotated[
        bool, Meta(description="exclude the ranges that the dataset marks as without loss")
    ] = True


@dataclass(frozen=True)
class Rows:
    """Rows of equal length. Arrays have shape (num_rows, row_length)."""

    ids: npt.NDArray[np.integer]
    """Token ids."""
    labels: npt.NDArray[np.integer]
    """Token ids; only valid where `has_label` is true."""
    flags: npt.NDArray[np.uint8]
    """Sums of REAL, RESTART and TARGET."""
    aligned: bool
    """Whether `labels[i]` belongs to `ids[i]`. Otherwise, it is the token after `ids[i]`."""

    @property
    def has_label(self) -> BoolArray:
        """Whether each token has a label."""
        return (self.flags & TARGET) > 0

    @property
    def restarts(self) -> BoolArray:
        """Whether the position is 0: at the start of each segment, and of padding."""
        return (self.flags & RESTART) > 0

    @property
    def real(self) -> BoolArray:
        """False for padding."""
        return (self.flags & REAL) > 0

    @cached_property
    def segmentation(self) -> Segmentation:
        """The boundaries of the segments."""
        return Segmentation.of_flags(self.flags)

    @staticmethod
    def interleaved(parts: list[Rows], places: list[Int64Array]) -> Rows:
        """Merge the rows of several readers: row i of part k becomes row `places[k][i]`."""
        shape = (sum(map(len, places)), parts[0].ids.shape[1])
        whole = [np.empty(shape, array.dtype) for array in _arrays(parts[0])]
        for part, chosen in zip(parts, places, strict=True):
            for target, array in zip(whole, _arrays(part), strict=True):
                target[chosen] = array
        return Rows(whole[0], whole[1], whole[2], parts[0].aligned)


def _arrays(rows: Rows) -> tuple[npt.NDArray[Any], ...]:
    return rows.ids, rows.labels, rows.flags


class RowReader:
    """Assembles the rows of a plan from the tokens of its dataset.

    By default, ids and labels have the dtype of the dataset, and aligned labels are the ids
    themselves. If you give a `dtype`, both are separate arrays of it, and labels are IGNORE_INDEX
    for tokens without loss.

    Raises:
        UserError: the plan belongs to another dataset.
        VerificationError: an array of a plan of up to `PLAN_BYTES_CHECKED` is damaged.
    """

    def __init__(
        self,
        dataset: Dataset,
        plan: Plan,
        labels: Labels | Targets = "aligned",
        dtype: np.dtype[np.integer] | None = None,
    ) -> None:
        plan.check_dataset(dataset)
        if sum(file.bytes for file in plan.manifest.files) <= PLAN_BYTES_CHECKED:
            plan.check_arrays()
        self.dataset, self.plan = dataset, plan
        self.targets = labels if isinstance(labels, Targets) else Targets(labels=labels)
        tokenizer = dataset.manifest.tokenizer
        self._eos = tokenizer.eos_id
        self._bos = tokenizer.prefix_ids[0] if tokenizer.prefix_ids else tokenizer.eos_id
        self.pad_id = self._eos if tokenizer.pad_id is None else tokenizer.pad_id
        token_dtype: np.dtype[np.integer] = np.dtype(dataset.manifest.token_dtype)
        self.dtype: np.dtype[np.integer] = token_dtype if dtype is None else dtype
        self._own_labels = dtype is not None or self.targets.labels == "next"
        self._ignored = 0 if dtype is None else IGNORE_INDEX
        self._like = np.empty(0, token_dtype.newbyteorder("<"))
        self._maps = ShardMaps(dataset)
        self._arrays = (
            np.asarray(plan.offsets),
            np.asarray(plan.documents),
            np.asarray(plan.starts),
            np.asarray(plan.lengths),
        )
        self._spans = lru_cache(SHARDS_KEPT)(checked_spans)
        self._made_of = (dataset, plan, self.targets, dtype)

    def __reduce__(self) -> tuple[type[RowReader], tuple[Any, ...]]:
        """Pickle without file maps. Another process maps the files again."""
        return type(self), self._made_of

    def twin(self) -> RowReader:
        """Return a reader of the same rows for another thread, with its own file maps."""
        return type(self)(*self._made_of)

    @cached_property
    def most_segments(self) -> int:
        """The most segments of a row, including padding at its end and between segments."""
        rows = self.plan.rows
        return rows.most_segments * (2 if rows.segment_multiple > 1 else 1) + 1

    def read(self, sequences: Int64Array, row_length: int) -> Rows:
        """Return the rows of `sequences`, shape (num_rows,), each padded to `row_length` tokens.

        Raises:
            UserError: a sequence does not exist.
            VerificationError: a segment is not inside its document or its row, or a block of tokens
                is damaged.
        """
        return self.read_layout(sequences, row_length)[0]

    def read_layout(self, sequences: Int64Array, row_length: int) -> tuple[Rows, Layout]:
        """Return the rows of `sequences` and their layout. Raises the same errors as `read`."""
        shape = (len(sequences), row_length)
        ids, flags = np.empty(shape, self.dtype), np.empty(shape, np.uint8)
        labels = np.empty(shape, self.dtype) if self._own_labels else ids
        segments, found = self._found(sequences, row_length)
        problem, placed = for_first_steps(assemble, ids.size)(
            (ids, labels, flags), segments, found, self._maps.table, self._like, self.rules
        )
        if problem:
            raise self.damaged(f"{PROBLEMS[problem]} of {row_length} tokens")
        rows = Rows(ids, labels, flags, aligned=self.targets.labels == "aligned")
        layout = Layout(*(*segments, found[0], *placed))
        if self._has_spans:
            self._mask_no_loss(rows, layout)
        return rows, layout

    @property
    def cache(self) -> BlockCache | None:
        """The block cache, if the dataset is in a bucket."""
        return self._maps.cache

    def announce_shards(self, sequences: Int64Array, row_length: int) -> None:
        """Start to fetch what `blocks_of` needs from a bucket. Damage is ignored here."""
        with suppress(VerificationError):
            self._maps.announce(self._looked_up(sequences, row_length)[1])

    def has_shards(self, sequences: Int64Array, row_length: int) -> bool:
        """Return whether `blocks_of` can run without waiting for announced files."""
        try:
            return self._maps.can_map(self._looked_up(sequences, row_length)[1])
        except VerificationError:
            return True

    def blocks_of(self, sequences: Int64Array, row_length: int) -> Int64Array:
        """Return the blocks of tokens to fetch for rows. It may omit blocks that are present.

        Damaged segments have no blocks; reading their rows raises the error.
        """
        maps = self._maps
        is_limited = maps.cache is not None and maps.cache.is_limited
        try:
            segments = self._looked_up(sequences, row_length)
            maps.require(segments[1])
        except VerificationError:
            return np.empty(0, np.int64)
        checked = self._none_checked if is_limited else maps.checked
        problem, _, found = self._located(segments, checked)
        return np.empty(0, np.int64) if problem else found

    @cached_property
    def _none_checked(self) -> npt.NDArray[np.uint8]:
        return np.zeros_like(self._maps.checked)

    def _looked_up(self, sequences: Int64Array, row_length: int) -> Int64Array:
        """Return the segments of sequences: see `look_up`."""
        if len(sequences) and not (sequences.min() >= 0 and sequences.max() < len(self.plan)):
            why = f"the plan has {len(self.plan)} sequences, counted from 0"
            raise UserError("the sequence does not exist", where=str(self.plan.folder), why=why)
        first_documents = self._maps.first_documents
        most = len(sequences) * self.plan.rows.most_segments
        problem, segments = for_steps(look_up, most)(
            sequences, self._arrays, first_documents, row_length
        )
        if problem:
            raise self.damaged(PROBLEMS[problem])
        return segments

    def _found(self, sequences: Int64Array, row_length: int) -> tuple[Int64Array, Int64Array]:
        """Return the segments of sequences, and their locations in mapped shards."""
        maps, segments = self._maps, self._looked_up(sequences, row_length)
        maps.require(segments[1])
        problem, found, new = self._located(segments, maps.checked)
        if len(new):
            maps.check(new, self._all_blocks(segments))
        if problem:
            raise self.damaged(PROBLEMS[problem])
        return segments, found

    def _all_blocks(self, segments: Int64Array) -> Int64Array | None:
        """Return the blocks of segments, or None if there is no cache with a limit."""
        maps = self._maps
        if maps.cache is None or not maps.cache.is_limited:
            return None
        return self._located(segments, self._none_checked)[2]

    def _located(
        self, segments: Int64Array, checked: npt.NDArray[np.uint8]
    ) -> tuple[int, Int64Array, Int64Array]:
        maps = self._maps
        blocks = (maps.first_blocks, checked, BLOCK_BYTES)
        find = for_first_steps(locate, 4 * segments.shape[1])
        return find(segments, maps.first_documents, maps.table, self._like, blocks)

    @cached_property
    def rules(self) -> Rules:
        """How segments become rows."""
        planned, targets = self.plan.rows, self.targets
        next_labels = targets.labels == "next"
        counts = planned.overlap_in_loss
        counts = counts if targets.overlap_in_loss is None else targets.overlap_in_loss
        return Rules(
            before=np.array([self._bos]),
            after=np.array([self._eos]),
            pad=self.pad_id,
            ignored=self._ignored,
            sets_bos=planned.bos_at_cuts,
            sets_eos=planned.eos_at_cuts,
            joins=planned.joins_ends,
            multiple=planned.segment_multiple,
            next_labels=next_labels,
            own_labels=self._own_labels,
            # The token after a BOS is already the target of the segment before, if there is one.
            bos_predicts=not next_labels or planned.bos_predicts,
            across=targets.across_documents,
            overlap=0 if counts else planned.overlap,
            prefix=targets.without_prefix,
        )

    @cached_property
    def _has_spans(self) -> bool:
        return self.dataset.policies.has_no_loss and self.targets.loss_spans

    def has_no_loss(self, layout: Layout) -> BoolArray:
        """Return which segments contain tokens excluded from the loss, shape (num_segments,)."""
        found = np.zeros(len(layout.rows), np.bool_)
        if self._has_spans:
            for place, begin, end in self._ranges_without_loss(layout):
                found[place] |= begin < layout.lengths[place] and end > 0
        return found

    def _mask_no_loss(self, rows: Rows, layout: Layout) -> None:
        """Remove the labels of tokens that the documents table excludes from the loss."""
        shift = 0 if rows.aligned else 1  # distance from a label to its token
        for place, begin, end in self._ranges_without_loss(layout):
            row, length = layout.rows[place], int(layout.lengths[place])
            column = int(layout.columns[place]) + bool(layout.kinds[place] & BOS)
            first = max(begin, 0 if self._is_first_predicted(layout, place) else shift)
            stop = min(end, length + shift)
            cells = slice(column + first - shift, column + max(stop, first) - shift)
            rows.flags[row, cells] &= ~TARGET
            if self._ignored:
                rows.labels[row, cells] = self._ignored

    def _ranges_without_loss(self, layout: Layout) -> Iterator[tuple[int, int, int]]:
        """Yield segments with the ranges of their documents, counted from the segment's start."""
        for number, places in _by_shard(layout):
            offsets, starts, stops = self._spans(self.dataset.shards[number])
            local = layout.documents[places] - self._maps.first_documents[number]
            for place, document in zip(places.tolist(), local.tolist(), strict=True):
                start, part = int(layout.starts[place]), slice(*offsets[document : document + 2])
                for begin, end in zip(starts[part].tolist(), stops[part].tolist(), strict=True):
                    yield place, begin - start, end - start

    def _is_first_predicted(self, layout: Layout, place: int) -> bool:
        """Return whether the token before a segment's first token is trained to predict it."""
        if layout.kinds[place] & BOS:
            return self.rules.bos_predicts
        if not self.rules.across or not layout.columns[place]:
            return False
        before = place - 1
        goes_on = layout.kinds[before] & (GOES_ON | EOS) == GOES_ON and not self.rules.overlap
        stop = layout.starts[before] + layout.lengths[before]
        return not (goes_on and stop >= self.rules.prefix)

    def damaged(self, why: str) -> VerificationError:
        """Return the error for a plan that does not match its dataset."""
        hint = "make the plan again: tokenmill pack"
        return VerificationError(
            "a plan does not match its dataset", where=str(self.plan.folder), why=why, hint=hint
        )


def plan_row_lengths(plan: Plan) -> Int64Array:
    """Return the length of each row of a plan in tokens, with padding, shape (num_sequences,).

    Raises:
        VerificationError: offsets are out of order, or a sequence is too long.
    """
    lengths = plan.rows.row_lengths
    if len(lengths) == 1:
        return np.full(len(plan), lengths[0], np.int64)
    plan.check_offsets()
    sizes = np.add.reduceat(plan.lengths, plan.offsets[:-1], dtype=np.int64)
    if (sizes > plan.rows.length).any():
        raise plan.damaged("a sequence is longer than the longest row")
    return plan.rows.row_lengths_of(sizes)


def _by_shard(layout: Layout) -> Iterator[tuple[int, Int64Array]]:
    """Yield shards, and the indices of their segments in the order of the shard."""
    order = np.lexsort((layout.documents, layout.shards))
    numbers, firsts = np.unique(layout.shards[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True)
