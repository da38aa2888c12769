"""What a packing strategy is: a module in `strategies/` with one function, `pack`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import compiled
from tokenmill.pack.options import PackOptions
from tokenmill.records import Int32Array, Int64Array, Segments, Sequences


@dataclass(frozen=True, slots=True)
class Pieces:
    """What is packed: segments, and the room that each takes in a sequence."""

    segments: Segments
    sizes: Int32Array
    """Shape (n,), tokens: the length, with tokens set at cuts, rounded up to the multiple."""

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def whole(documents: npt.ArrayLike, lengths: npt.ArrayLike) -> Pieces:
        """A piece for each document, of all its tokens."""
        sizes = np.asarray(lengths, np.int32)
        numbers = np.asarray(documents)  # a stream may need 64 bits
        return Pieces(Segments(numbers, np.zeros_like(sizes), sizes), sizes)


class Strategy(Protocol):
    """Packs pieces into sequences. The same pieces give the same sequences on any machine.

    No piece is larger than a sequence, unless the strategy cuts documents by itself
    (`options.CUTTING`): then pieces are whole documents.
    """

    def pack(self, pieces: Pieces, options: PackOptions) -> Sequences:
        """Put every piece into exactly one sequence of at most `options.length` tokens."""
        ...


def load_strategy(name: str) -> Strategy:
    """The strategy of a name, e.g. "best-fit"; its module is imported only now."""
    module = importlib.import_module(f"tokenmill.pack.strategies.{name.replace('-', '_')}")
    return cast("Strategy", module)


def deal(pieces: Pieces, sequence_of: Int32Array, *, renumber: bool = True) -> Sequences:
    """Gather pieces by the sequence each was assigned to, shape (n,), numbers from 0 without gaps.

    Inside a sequence pieces keep their order. Sequences are renumbered by their first piece, so
    that a plan follows its corpus instead of the patterns in which a strategy fills sequences.
    """
    if renumber:
        sequence_of = _numbered_by_first(sequence_of)
    segments = pieces.segments
    offsets, documents, starts, lengths = _gathered(
        sequence_of, segments.documents, segments.starts, segments.lengths
    )
    return Sequences(Segments(documents, starts, lengths), offsets)


@compiled
def _numbered_by_first(sequence_of: Int32Array) -> Int32Array:
    numbers = np.full(len(sequence_of), -1, np.int32)
    result = np.empty(len(sequence_of), np.int32)
    found = np.int32(0)
    for i in range(len(sequence_of)):
        if numbers[sequence_of[i]] < 0:
            numbers[sequence_of[i]] = found
            found += 1
        result[i] = numbers[sequence_of[i]]
    return result


@compiled
def _gathered(
    sequence_of: Int32Array, documents: Int32Array, starts: Int32Array, lengths: Int32Array
) -> tuple[Int64Array, Int32Array, Int32Array, Int32Array]:
    """Offsets of the sequences, and the segments of each together."""
    num_sequences = 0
    for i in range(len(sequence_of)):
        num_sequences = max(num_sequences, sequence_of[i] + 1)
    offsets = np.zeros(num_sequences + 1, np.int64)
    for i in range(len(sequence_of)):
        offsets[sequence_of[i] + 1] += 1
    for i in range(num_sequences):
        offsets[i + 1] += offsets[i]
    places = offsets[:-1].copy()
    gathered = (np.empty_like(documents), np.empty_like(starts), np.empty_like(lengths))
    for i in range(len(sequence_of)):
        place = places[sequence_of[i]]
        places[sequence_of[i]] += 1
        gathered[0][place] = documents[i]
        gathered[1][place] = starts[i]
        gathered[2][place] = lengths[i]
    return offsets, gathered[0], gathered[1], gathered[2]
