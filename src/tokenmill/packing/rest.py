"""What a training run has not read yet: the tokens that the sequences given so far do not cover.

    document   0 1 2 3 4 5 6 7 8 9
    given          2 3 4               a segment of a sequence that a step has given
    left       0 1       5 6 7 8 9     two ranges, which are packed like two documents

A document that is to be given twice has one more copy of what was given once. Tokens that a window
repeats of the window before (`overlap`) are given by the window before, which has them in its loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from mmap import MADV_DONTNEED, mmap
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np

from tokenmill.core.records import BoolArray, Int32Array, Int64Array, Segments
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.packing.document_choice import Chosen
from tokenmill.packing.long_documents import CutBooks, Places
from tokenmill.packing.options import PackOptions
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.manifest import Count
from tokenmill.store.plan import Plan

REST_OF = "rest_of"
"""The key of a `RestOf` among the options that a plan stores."""
SEQUENCES_AT_ONCE = 1 << 16
GIVEN, TAKEN_OUT = "given already", "taken out"
"""Reasons in the books of a plan, beside those of `DocumentChoice`."""


class RestOf(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a run was in the plan of which another plan has the rest."""

    plan: str
    """Id of the plan."""
    name: str
    dataset: str
    """Id of the dataset or view that the plan belongs to."""
    seed: int
    shuffle: Literal["global", "blocks", "none"]
    epoch: Count
    rows: list[Count]
    """Sequences that were given in this epoch, for each row length in ascending order."""


class ShardSegments(NamedTuple):
    """Segments, sorted by document. All arrays have shape (n,)."""

    documents: Int64Array
    starts: Int64Array
    lengths: Int64Array
    times: Int64Array
    """How often each was given, at least once."""


class GivenSegments:
    """Reads the given segments of a plan, best in the order of its shards.

    One window of the plan is read at a time, which takes about 50 bytes of memory for each given
    segment in the window.

    Args:
        dataset: the dataset or view that the plan belongs to.
        plan: the plan.
        times: returns how often sequences were given, shape (n,), from their numbers.
    """

    def __init__(
        self, dataset: Dataset, plan: Plan, times: Callable[[Int64Array], Int64Array]
    ) -> None:
        self.dataset, self.plan, self._times = dataset, plan, times
        self._first_shards = offsets_from_lengths([each.shards for each in plan.manifest.windows])
        self._window = -1
        self._segments = ShardSegments(*np.zeros((4, 0), np.int64))

    def of_shard(self, number: int, lengths: Int64Array) -> ShardSegments:
        """Return the given segments of a shard; documents are numbered in the shard.

        `lengths`, shape (num_documents,), are those of its documents.

        Raises:
            VerificationError: the plan is damaged: a segment is not inside its document.
        """
        window = int(np.searchsorted(self._first_shards, number, side="right")) - 1
        if window != self._window:
            self._window, self._segments = window, self._read(window)
        first = self.dataset.first_document(number)
        edges = np.searchsorted(self._segments.documents, [first, first + len(lengths)])
        part = slice(*edges.tolist())
        found = ShardSegments(*(each[part] for each in self._segments))
        found = found._replace(documents=found.documents - first)
        if (found.starts + found.lengths > lengths[found.documents]).any():
            raise self.plan.damaged("a segment reaches outside its document")
        return found

    def _read(self, window: int) -> ShardSegments:
        """Return the given segments of a window of the plan, with their documents' own numbers."""
        plan = self.plan
        first, last = plan.window_starts[window : window + 2].tolist()
        offsets = plan.offsets[first : last + 1]
        if (offsets[1:] < offsets[:-1]).any():
            raise plan.damaged("its offsets are out of order")
        part = slice(int(offsets[0]), int(offsets[-1]))
        parts = [np.empty(0, np.int64)]
        for at in range(first, last, SEQUENCES_AT_ONCE):  # so that few take memory at once
            parts.append(self._times(np.arange(at, min(at + SEQUENCES_AT_ONCE, last))))
        times = np.repeat(np.concatenate(parts), np.diff(offsets))
        given = np.flatnonzero(times)
        given = given[np.argsort(plan.documents[part][given], kind="stable")]
        arrays = (plan.documents, plan.starts, plan.lengths)
        documents, starts, lengths = (each[part][given].astype(np.int64) for each in arrays)
        for array in (plan.offsets, *arrays):
            if len(array):  # an empty one is not mapped
                cast("mmap", array.base).madvise(MADV_DONTNEED)
        return ShardSegments(documents, starts, lengths, times[given])


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a dataset, and what that depends on."""

    of: RestOf
    given: Sequence[tuple[GivenSegments, Mapping[int, int]]]
    """What was given of the plan that `of` names, and if it is itself a rest, of the plans that it
    depends on; each with the numbers that its shards have there, by those in this dataset."""

    def stored(self) -> dict[str, Any]:
        """Return what a plan of the rest stores among its options."""
        values: dict[str, Any] = msgspec.to_builtins(self.of)
        return {REST_OF: values}

    def left_of(self, number: int, shard: Shard, lengths: Int64Array) -> Left:
        """Return what is left of the documents of a shard.

        Raises:
            VerificationError: a given segment is not inside its document.
        """
        held = np.zeros(len(lengths), np.bool_)
        parts = [np.empty((3, 0), np.int64)]  # documents, starts and stops of given segments
        for given, numbers in self.given:
            if number not in numbers:
                continue
            found = given.of_shard(numbers[number], lengths)
            own = given.dataset.shards[numbers[number]]
            starts = found.starts + np.where(found.starts > 0, given.plan.rows.overlap, 0)
            parts.append(np.stack([found.documents, starts, found.starts + found.lengths]))
            held[own.chosen] = True
            if own is not shard:
                own.release()
        taken_out = held & ~shard.selected if shard.selected is not None else np.zeros_like(held)
        return Left(lengths, taken_out, *_covers(lengths, *np.concatenate(parts, axis=1)))


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of the documents of a shard."""

    lengths: Int64Array
    """Tokens of each document, shape (num_documents,)."""
    taken_out: BoolArray
    """Documents that the run's plans have and the view leaves out, shape (num_documents,)."""
    points: Int64Array
    """Tokens of the shard where the number of covers may change, ascending, with the end."""
    covers: Int64Array
    """How many given segments cover the tokens from each point to the next, shape (n - 1,)."""
    documents: Int64Array
    """The document of these tokens, shape (n - 1,)."""

    def enter(self, chosen: Chosen, books: CutBooks) -> None:
        """Count the tokens that are not planned, by reason."""
        widths = np.diff(self.points)
        left = np.zeros(len(self.lengths), np.int64)
        np.add.at(left, self.documents, np.where(self.covers == 0, widths, 0))
        given = self.lengths - left
        books.lose(GIVEN, given[given > 0])
        for reason, mask in {TAKEN_OUT: self.taken_out, **chosen.left_out}.items():
            books.lose(reason, left[mask & (left > 0)])

    def ranges(self, chosen: Chosen, options: PackOptions) -> tuple[Int32Array, Places]:
        """Return the lengths and the places of the ranges to pack, in order."""
        parts, num_documents = [], 0
        for copy, documents in enumerate(chosen.copies):
            ranges = self._ranges(copy)
            wanted = np.zeros(len(self.lengths), np.bool_)
            wanted[documents] = True
            ranges = ranges.take(np.flatnonzero(wanted[ranges.documents]))
            num_documents += len(np.unique(ranges.documents))
            if options.long_documents == "keep-both-ends":
                # Of two segments of a document in a row, the later would join the text before it.
                ranges = ranges.take(np.lexsort((-ranges.starts, ranges.documents)))
            parts.append(ranges)
        whole = Segments.joined(parts) if parts else Segments(*np.zeros((3, 0), np.int32))
        ends = self.lengths[whole.documents].astype(np.int32)
        return whole.lengths, Places(whole.documents, whole.starts, ends, num_documents)

    def _ranges(self, copy: int) -> Segments:
        """Return the ranges that are covered at most `copy` times, in order."""
        free = self.covers <= copy
        goes_on = np.zeros(len(free), np.bool_)
        goes_on[1:] = free[:-1] & (self.documents[1:] == self.documents[:-1])
        begins = np.flatnonzero(free & ~goes_on)
        if not len(begins):
            return Segments(*np.zeros((3, 0), np.int32))
        lengths = np.add.reduceat(np.where(free, np.diff(self.points), 0), begins)
        documents = self.documents[begins]
        starts = self.points[begins] - offsets_from_lengths(self.lengths)[documents]
        return Segments(*(each.astype(np.int32) for each in (documents, starts, lengths)))


def _covers(
    lengths: Int64Array, documents: Int64Array, starts: Int64Array, stops: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the points, covers and documents of `Left`."""
    offsets = offsets_from_lengths(lengths)
    ends = np.concatenate([offsets, offsets[documents] + starts, offsets[documents] + stops])
    points, places = np.unique(ends, return_inverse=True)
    of_documents, begin, end = np.split(places, [len(offsets), len(offsets) + len(starts)])
    change = np.bincount(begin, minlength=len(points)) - np.bincount(end, minlength=len(points))
    counts = np.diff(of_documents)
    return points, np.cumsum(change)[:-1], np.repeat(np.arange(len(lengths)), counts)
