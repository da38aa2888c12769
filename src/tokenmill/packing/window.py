"""Pack a window of documents: cut long documents, separate kinds, and pack each kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array, Segments, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.packing.long_documents import (
    Boundaries,
    CutBooks,
    Places,
    cut,
    part_both_ends,
    set_at_cuts,
)
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import STRATEGIES
from tokenmill.packing.strategy import Pieces
from tokenmill.store.row_format import RowFormat


@dataclass(frozen=True, slots=True)
class Window:
    """A group of documents that are packed together."""

    lengths: Int32Array
    """Length in tokens of every document of the window's shards, shape (num_documents,)."""
    chosen: Int32Array
    """Documents to pack, in order, shape (n,). A document can be missing or repeated."""
    kinds: Int32Array | None = None
    """Kind of each document, shape (num_documents,). Different kinds never share a sequence."""
    sources: Int32Array | None = None
    """Source of each document, shape (num_documents,), for the figures."""
    boundaries: Boundaries | None = None
    places: Places | None = None
    """Where ranges of documents are, if these are packed in place of whole documents."""


@dataclass(frozen=True, slots=True)
class PackedWindow:
    """The sequences of a window, with the data for its figures."""

    window: Window
    sequences: Sequences
    books: CutBooks
    piece_sizes: Int64Array
    """Number of pieces of each size, shape (length + 1,); zeros if the strategy cuts documents."""

    @property
    def planned(self) -> Sequences:
        """The sequences with the numbers of documents, if ranges of documents were packed."""
        places, segments = self.window.places, self.sequences.segments
        if places is None:
            return self.sequences
        documents = places.documents[segments.documents]
        return Sequences(
            Segments(documents, segments.starts, segments.lengths), self.sequences.offsets
        )


def pack_window(window: Window, options: PackOptions) -> PackedWindow:
    """Pack the chosen documents of a window."""
    strategy = STRATEGIES[options.packing]
    books = CutBooks()
    parts: list[Sequences] = []
    piece_sizes = np.zeros(options.length + 1, np.int64)
    places = window.places or Places.whole(window.lengths)
    for chosen in _by_kind(window):
        if strategy.cuts_documents and options.long_documents == "split":
            sizes = window.lengths[chosen]
            pieces = Pieces(Segments(chosen, places.starts[chosen], sizes), sizes)
        else:
            pieces, books_of_kind = cut(chosen, window.lengths, options, window.boundaries, places)
            books.add(books_of_kind)
        if not strategy.cuts_documents:
            piece_sizes += np.bincount(pieces.sizes, minlength=options.length + 1)
        parts.append(strategy.pack(pieces, options))
    sequences = parts[0] if len(parts) == 1 else _joined(parts)
    if options.long_documents == "keep-both-ends":
        sequences = part_both_ends(sequences, options, window.lengths, places.starts)
    return PackedWindow(window, sequences, books, piece_sizes)


def sums(values: npt.NDArray[np.integer], offsets: Int64Array) -> Int64Array:
    """Return the sums of `values[offsets[i]:offsets[i + 1]]`, shape (n,)."""
    totals = offsets_from_lengths(values)
    return totals[offsets[1:]] - totals[offsets[:-1]]


def row_format(options: PackOptions, most_segments: int) -> RowFormat:
    """Return the row format of a plan; `most_segments` is the most of any sequence."""
    strategy = STRATEGIES[options.packing]
    bos, eos = set_at_cuts(options)
    return RowFormat(
        sequence_lengths=strategy.sequence_lengths(options),
        row_multiple=options.sequence_multiple,
        group_size=strategy.group_size(options),
        most_segments=max(most_segments, 1),
        segment_multiple=options.segment_multiple,
        bos_at_cuts=bos,
        eos_at_cuts=eos,
        bos_predicts=options.long_documents == "keep-end",
        joins_ends=options.long_documents == "keep-both-ends",
        overlap=options.overlap,
        overlap_in_loss=options.overlap_in_loss,
        reserved=options.reserve,
    )


def _by_kind(window: Window) -> list[Int32Array]:
    if window.kinds is None or not len(window.chosen):
        return [window.chosen]
    kinds = window.kinds[window.chosen]
    order = np.argsort(kinds, kind="stable")
    edges = np.flatnonzero(np.diff(kinds[order])) + 1
    return np.split(window.chosen[order], edges)


def _joined(parts: list[Sequences]) -> Sequences:
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    segments = Segments.joined([part.segments for part in parts])
    return Sequences(segments, offsets_from_lengths(counts))
