"""The interface of packing strategies: the pieces to pack, and what a strategy does and can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.options import Problem
from tokenmill.core.records import Int32Array, Int64Array, Segments, Sequences
from tokenmill.kernels.interpreted import for_steps
from tokenmill.kernels.sequences import gathered, numbered_by_first
from tokenmill.packing.options import PackOptions


@dataclass(frozen=True, slots=True)
class Pieces:
    """Segments to pack, and the room that each needs in a sequence."""

    segments: Segments
    sizes: Int32Array
    """Room in tokens, shape (n,): the length with tokens added at cuts, rounded up."""

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def whole(documents: npt.ArrayLike, lengths: npt.ArrayLike) -> Pieces:
        """Return one piece per document, with all its tokens."""
        sizes = np.asarray(lengths, np.int32)
        numbers = np.asarray(documents)  # document numbers of a stream may need 64 bits
        return Pieces(Segments(numbers, np.zeros_like(sizes), sizes), sizes)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A packing strategy: how to turn pieces into sequences, and its properties.

    The same pieces must give the same sequences on any machine.
    """

    pack: Callable[[Pieces, PackOptions], Sequences]
    """Puts every piece into exactly one sequence of at most `options.length` tokens."""
    cuts_documents: bool = False
    """Whether it takes documents of any length, and cuts them where a sequence is full."""
    problems: Callable[[PackOptions], Iterator[Problem]] = lambda options: iter(())
    """Yields what it cannot do with the options."""
    sequence_lengths: Callable[[PackOptions], list[int]] = lambda options: [options.length]
    """Returns the possible sequence lengths, ascending; the last one is `options.length`."""
    group_size: Callable[[PackOptions], int] = lambda options: 1
    """Returns the number of consecutive sequences that belong to the same step."""
    lower_bound: Callable[[Int64Array, PackOptions], int] = lambda piece_sizes, options: 0
    """Returns a lower bound on the sequences for `piece_sizes[s]` pieces of size s, or 0."""
    count_sequences: Callable[[Int64Array, PackOptions], int] | None = None
    """Returns the number of sequences for pieces of each size, if it can without packing."""
    needs: str | None = None
    """An optional package that it needs."""
    extra: str = ""
    """The extra of tokenmill that installs this package."""


def deal(pieces: Pieces, sequence_of: Int32Array, *, renumber: bool = True) -> Sequences:
    """Gather pieces by their sequence. `sequence_of`, shape (n,), has numbers from 0 without gaps.

    Pieces keep their order inside a sequence. Sequences are renumbered by their first piece, so
    that the plan follows the corpus instead of the order in which a strategy fills sequences.
    """
    if renumber:
        sequence_of = for_steps(numbered_by_first, len(pieces))(sequence_of)
    segments = pieces.segments
    gather = for_steps(gathered, len(pieces))
    offsets, documents, starts, lengths = gather(
        sequence_of, segments.documents, segments.starts, segments.lengths
    )
    return Sequences(Segments(documents, starts, lengths), offsets)
