"""One window of documents into sequences: cut what is too long, part the kinds, pack."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.pack.long_documents import (
    Boundaries,
    CutBooks,
    cut,
    part_both_ends,
)
from tokenmill.pack.options import CUTTING, PackOptions
from tokenmill.pack.strategy import Pieces, load_strategy
from tokenmill.records import Int32Array, Int64Array, Segments, Sequences


@dataclass(frozen=True, slots=True)
class Window:
    """Documents that are packed together."""

    lengths: Int32Array
    """Shape (num_documents,): tokens of every document of the window's shards."""
    chosen: Int32Array
    """Shape (n,): the documents to pack, in order; one may be left out, or appear repeatedly."""
    kinds: Int32Array | None = None
    """Shape (num_documents,): documents of different kinds never share a sequence."""
    sources: Int32Array | None = None
    """Shape (num_documents,): the source of each document, for the figures."""
    boundaries: Boundaries | None = None


@dataclass(frozen=True, slots=True)
class PackedWindow:
    """Sequences of a window, with what is needed to judge them."""

    window: Window
    sequences: Sequences
    books: CutBooks
    piece_sizes: Int64Array
    """Shape (length + 1,): pieces of each size; none where the strategy cuts by itself."""


def pack_window(window: Window, options: PackOptions) -> PackedWindow:
    """Pack the chosen documents of a window."""
    strategy = load_strategy(options.packing)
    books = CutBooks()
    parts: list[Sequences] = []
    piece_sizes = np.zeros(options.length + 1, np.int64)
    for chosen in _by_kind(window):
        if options.packing in CUTTING and options.long_documents == "split":
            pieces = Pieces.whole(chosen, window.lengths[chosen])
        else:
            pieces, books_of_kind = cut(chosen, window.lengths, options, window.boundaries)
            books.add(books_of_kind)
        if options.packing not in CUTTING:
            piece_sizes += np.bincount(pieces.sizes, minlength=options.length + 1)
        parts.append(strategy.pack(pieces, options))
    sequences = parts[0] if len(parts) == 1 else _joined(parts)
    if options.long_documents == "keep-both-ends":
        sequences = part_both_ends(sequences, options, window.lengths)
    return PackedWindow(window, sequences, books, piece_sizes)


def sums(values: npt.NDArray[np.integer], offsets: Int64Array) -> Int64Array:
    """Shape (n,): the sum of `values[offsets[i]:offsets[i + 1]]`."""
    totals = offsets_from_lengths(values)
    return totals[offsets[1:]] - totals[offsets[:-1]]


def row_lengths(sizes: Int64Array, options: PackOptions) -> Int64Array:
    """Shape (num_sequences,): tokens of each row with its padding."""
    if options.packing != "length-buckets":
        return np.full(len(sizes), options.row_length, np.int64)
    buckets = 1 << np.ceil(np.log2(np.maximum(sizes, 1))).astype(np.int64)
    buckets = np.maximum(buckets, options.smallest_bucket)
    multiple = options.sequence_multiple
    rounded: Int64Array = (buckets + multiple - 1) // multiple * multiple
    return rounded


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
