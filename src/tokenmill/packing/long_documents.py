"""Policies for documents longer than a sequence, with counts of what they remove or repeat.

Sequences of 4, a document 0 1 2 3 4 5 6 7 8 (9 tokens):

    split              0 1 2 3 | 4 5 6 7 | 8         nothing is lost
    split-at-boundary  as split, with each cut moved back to the last boundary within the slack
    sliding-window     0 1 2 3 | 3 4 5 6 | 6 7 8     with an overlap of 1
    keep-start         0 1 2 3                       tail truncation: the end is removed
    keep-end           5 6 7 8                       head truncation: the beginning is removed
    keep-both-ends     0 1 7 8                       middle truncation, as two segments of one row
    drop               (nothing)

Hugging Face tokenizers call `overlap` a `stride`. Tokens added at cuts (`at_cuts`) take room: with
"bos-and-eos", the split is 0 1 2 EOS | BOS 3 4 EOS | BOS 5 6 EOS | BOS 7 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.core.records import Int32Array, Int64Array, Segments, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels import cutting as kernel
from tokenmill.kernels.interpreted import for_steps
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategy import Pieces

SPLITTING = ("split", "split-at-boundary", "sliding-window")
TRUNCATING = {
    "keep-start": "end removed",
    "keep-end": "beginning removed",
    "keep-both-ends": "middle removed",
}
"""Policies that keep a part of a document, with the reason under which the rest is counted."""


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where texts can be cut: the tokens and tables that `split-at-boundary` needs."""

    ids_of: Callable[[int], npt.NDArray[np.integer]]
    """Returns the token ids of a document of the window, or of a range."""
    ends: npt.NDArray[np.bool_]
    """Whether a boundary follows each token, shape (largest id + 1,)."""
    opens: npt.NDArray[np.bool_]
    """Whether a boundary follows each token and a next token that `closes`, the same shape."""
    closes: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Places:
    """Where ranges of documents are in their documents. Arrays have shape (num_ranges,).

    Where ranges are packed, they stand for the documents of a window: lengths, kinds and sources
    are theirs.
    """

    documents: Int32Array
    """The document of each range, numbered in the window's shards."""
    starts: Int32Array
    """Its first token."""
    ends: Int32Array
    """The length of its document."""
    num_documents: int
    """Documents with a range. Repeated documents count each time."""

    @staticmethod
    def whole(lengths: Int32Array) -> Places:
        """Return the places of whole documents."""
        zeros = np.zeros(len(lengths), np.int32)
        return Places(np.arange(len(lengths), dtype=np.int32), zeros, lengths, len(lengths))


@dataclass(slots=True)
class CutBooks:
    """Counts of what happened to documents before they were packed."""

    lost_tokens: dict[str, int] = field(default_factory=dict)
    """Tokens that are in no sequence, by reason."""
    lost_documents: dict[str, int] = field(default_factory=dict)
    """Documents that lost some or all of their tokens, by the same reasons."""
    repeated_tokens: int = 0
    """Tokens that are in a sequence again: the overlap of windows."""

    def add(self, other: CutBooks) -> None:
        """Add the counts of `other`."""
        for own, others in (
            (self.lost_tokens, other.lost_tokens),
            (self.lost_documents, other.lost_documents),
        ):
            for reason, count in others.items():
                own[reason] = own.get(reason, 0) + count
        self.repeated_tokens += other.repeated_tokens

    def lose(self, reason: str, lengths: npt.NDArray[np.integer]) -> None:
        """Count documents that lose `lengths` tokens each."""
        if len(lengths):
            tokens = self.lost_tokens.get(reason, 0) + int(lengths.sum(dtype=np.int64))
            self.lost_tokens[reason] = tokens
            self.lost_documents[reason] = self.lost_documents.get(reason, 0) + len(lengths)


def cut(
    documents: Int32Array,
    lengths: Int32Array,
    options: PackOptions,
    boundaries: Boundaries | None = None,
    places: Places | None = None,
) -> tuple[Pieces, CutBooks]:
    """Return pieces of at most `options.room` tokens, by the policy `options.long_documents`.

    `documents`, shape (n,), are the documents to pack, in order, or ranges of documents if there
    are `places`. `lengths` is indexed by document.
    """
    places = places or Places.whole(lengths)
    starts, ends = places.starts[documents], places.ends[documents]
    own = lengths[documents]
    context = _context(starts, options)
    bos, eos = tokens_at_cuts(starts - context, starts + own, ends, options)
    long = own + context + bos + eos > options.room
    books = CutBooks()
    policy = options.long_documents
    first, stop = kept_range(own, starts, ends, options)
    segments = Segments(documents, first, stop - first)
    if policy in SPLITTING:
        if long.any():
            edges = bos.astype(np.int8), eos.astype(np.int8)
            counts, within, taken = _split(segments, edges, options, boundaries)
            segments = segments.take(np.repeat(np.arange(len(documents)), counts))
            segments = Segments(segments.documents, segments.starts + within, taken)
        repeated = segments.lengths.sum(dtype=np.int64) - own.sum(dtype=np.int64)
        books.repeated_tokens = int(repeated)
    elif policy == "drop":
        segments = segments.take(np.flatnonzero(~long))
        books.lose("dropped", own[long])
    else:
        books.lose(TRUNCATING[policy], (own - segments.lengths)[long])
    return pieces_of(segments, places.ends, options), books


def check_window_size(count: int) -> None:
    """Raise a UserError if a window has more documents or pieces than 31 bits can number."""
    if count >= 2**31:
        raise UserError(
            "a window is too large",
            why=f"it has {count} documents or pieces; the maximum is {2**31 - 1}",
            hint="pack local windows (--window local), or longer sequences",
        )


def pieces_of(segments: Segments, ends: Int32Array, options: PackOptions) -> Pieces:
    """Return segments with the room that each needs; `ends` are the lengths of documents."""
    stops = segments.starts + segments.lengths
    bos, eos = tokens_at_cuts(segments.starts, stops, ends[segments.documents], options)
    sizes = segments.lengths + bos + eos + options.reserve
    multiple = options.segment_multiple
    if multiple > 1:
        sizes = (sizes + multiple - 1) // multiple * multiple
    return Pieces(segments, sizes.astype(np.int32, copy=False))


def tokens_at_cuts(
    starts: Int32Array, stops: Int32Array, ends: Int32Array, options: PackOptions
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which ranges of documents get a BOS before, and which an EOS after, their tokens."""
    has_bos, has_eos = set_at_cuts(options)
    return (starts > 0) & has_bos, (stops < ends) & has_eos


def set_at_cuts(options: PackOptions) -> tuple[bool, bool]:
    """Return whether a BOS and whether an EOS is added at cuts."""
    names = options.at_cuts.split("-and-")
    return "bos" in names, "eos" in names


def kept_range(
    lengths: Int32Array, starts: Int32Array, ends: Int32Array, options: PackOptions
) -> tuple[Int32Array, Int32Array]:
    """Return the tokens [start, stop) of its document that are packed of each range.

    All arrays have shape (n,): see `Places`. A truncating policy keeps a part of a range. For
    keep-both-ends, this is a part from the start with the length of both parts. After packing,
    `part_both_ends` splits it. The first window of a range repeats tokens before it, as windows do.
    """
    has_bos, has_eos = set_at_cuts(options)
    stops = starts + lengths
    if options.long_documents in TRUNCATING:
        bos, eos = tokens_at_cuts(starts, stops, ends, options)
        long = lengths + bos + eos > options.room
        if options.long_documents == "keep-end":
            kept = np.where(long, options.room - has_bos - eos, lengths).astype(np.int32)
            return stops - kept, stops
        has_eos &= options.long_documents == "keep-start"
        kept = np.where(long, options.room - bos - has_eos, lengths).astype(np.int32)
        return starts, starts + kept
    return starts - _context(starts, options), stops


def _context(starts: Int32Array, options: PackOptions) -> Int32Array:
    """Return how many tokens before each range its first window repeats."""
    overlap = options.overlap if options.long_documents == "sliding-window" else 0
    return np.minimum(starts, np.int32(overlap))


def part_both_ends(
    sequences: Sequences, options: PackOptions, lengths: Int32Array, starts: Int32Array
) -> Sequences:
    """Turn the range of each document with keep-both-ends into its two segments."""
    whole = sequences.segments
    parted = whole.lengths < lengths[whole.documents]
    share = Fraction(str(options.start_share))  # 0.55 of 100 is 55, not 56
    head = math.ceil(share * options.length)
    both = np.repeat(parted, 1 + parted)
    segments = whole.take(np.repeat(np.arange(len(whole)), 1 + parted))
    is_tail = np.zeros(len(segments), np.bool_)
    is_tail[1:] = both[1:] & (np.cumsum(both)[:-1] % 2 == 1)
    tail = options.length - head
    stops = (starts + lengths)[segments.documents]
    starts = np.where(is_tail, stops - tail, segments.starts)
    kept = np.where(both, np.where(is_tail, tail, head), segments.lengths)
    some = kept > 0  # with a share of 0 or 1, one of the two is empty
    offsets = offsets_from_lengths(1 + parted)[sequences.offsets]
    return Sequences(
        Segments(
            segments.documents[some], starts[some].astype(np.int32), kept[some].astype(np.int32)
        ),
        offsets_from_lengths(some)[offsets],
    )


def _split(
    ranges: Segments, edges: kernel.Edges, options: PackOptions, boundaries: Boundaries | None
) -> tuple[Int64Array, Int32Array, Int32Array]:
    """Return the number of segments of each range, and their starts in it and lengths."""
    taken = ranges.lengths
    has_bos, has_eos = set_at_cuts(options)
    overlap = options.overlap if options.long_documents == "sliding-window" else 0
    room = (options.room, int(has_bos), int(has_eos))
    if options.long_documents == "split-at-boundary":
        if boundaries is None:
            raise ValueError("split-at-boundary needs boundaries")
        return _split_at_boundaries(ranges, edges, room, boundaries, options.slack_tokens)
    least = options.room - has_bos - has_eos - overlap
    steps = len(taken) + int(taken.sum(dtype=np.int64)) // max(least, 1)
    counts = for_steps(kernel.count_windows, steps)(taken, edges, *room, overlap)
    total = int(counts.sum())
    check_window_size(total)
    return counts, *for_steps(kernel.windows, total)(taken, edges, total, *room, overlap)


def _split_at_boundaries(
    ranges: Segments,
    edges: kernel.Edges,
    room: tuple[int, int, int],
    boundaries: Boundaries,
    slack: int,
) -> tuple[Int64Array, Int32Array, Int32Array]:
    taken = ranges.lengths
    all_starts: list[npt.NDArray[np.int32]] = []
    counts = np.ones(len(taken), np.int64)
    whole = np.zeros(1, np.int32)
    tables = (boundaries.ends, boundaries.opens, boundaries.closes)
    for i, document in enumerate(ranges.documents.tolist()):
        own_edges = int(edges[0][i]), int(edges[1][i])
        if taken[i] <= room[0] - sum(own_edges):
            all_starts.append(whole)
            continue
        ids = np.asarray(boundaries.ids_of(document))
        if ids.min() < 0 or ids.max() >= len(boundaries.ends):
            why = f"document {document} of the window has an id outside the vocabulary"
            hint = "tokenmill verify lists what else is damaged"
            raise VerificationError("the dataset is damaged", why=why, hint=hint)
        all_starts.append(kernel.boundary_starts(ids, tables, own_edges, *room, slack))
        counts[i] = len(all_starts[-1])
    starts = np.concatenate(all_starts)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    last = np.cumsum(counts) - 1
    ends[last] = taken
    return counts, starts, ends - starts
