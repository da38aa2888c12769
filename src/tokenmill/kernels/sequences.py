"""Loops over the segments of sequences: gather them, measure them, add up their lengths."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled


@compiled
def numbered_by_first(sequence_of: Int32Array) -> Int32Array:
    """Return the sequence of each piece, if sequences are numbered by their first piece."""
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
def gathered(
    sequence_of: Int32Array, documents: Int32Array, starts: Int32Array, lengths: Int32Array
) -> tuple[Int64Array, Int32Array, Int32Array, Int32Array]:
    """Return the offsets of sequences, and segments grouped by sequence."""
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


@compiled
def measure(
    segments: tuple[Int32Array, Int32Array, Int32Array],
    offsets: Int64Array,
    ends: Int32Array,
    kept: tuple[Int32Array, Int32Array],
    rules: tuple[int, int, int, int],
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return the size and the attention cost of each sequence, and sums.

    The sums are tokens, tokens added at cuts, documents that are cut, and cuts.
    """
    documents, starts, lengths = segments
    kept_starts, kept_stops = kept
    bos, eos, multiple, reserve = rules
    sizes = np.zeros(len(offsets) - 1, np.int64)
    costs = np.zeros(len(offsets) - 1, np.int64)
    tokens, inserted, documents_cut, cuts = 0, 0, 0, 0
    for sequence in range(len(offsets) - 1):
        for i in range(offsets[sequence], offsets[sequence + 1]):
            document, stop = documents[i], starts[i] + lengths[i]
            more = 0
            if starts[i] > 0:
                more += bos
            if stop < ends[document]:
                more += eos
            if stop < kept_stops[document]:
                cuts += 1
                if starts[i] == kept_starts[document]:
                    documents_cut += 1
            tokens += lengths[i]
            inserted += more
            size = lengths[i] + more + reserve
            sizes[sequence] += (size + multiple - 1) // multiple * multiple
            costs[sequence] += np.int64(lengths[i]) * lengths[i]
    return sizes, costs, np.array([tokens, inserted, documents_cut, cuts], np.int64)


@compiled
def sums_of_lengths(
    sequences: Int64Array, offsets: Int64Array, lengths: npt.NDArray[np.integer], squared: bool
) -> Int64Array:
    """Return sums over the segments of each sequence, up to the first invalid offset."""
    sums = np.zeros(len(sequences), np.int64)
    for i in range(len(sequences)):
        first, last = offsets[sequences[i]], offsets[sequences[i] + 1]
        if first < 0 or last <= first or last > len(lengths):
            return sums[:i]
        for k in range(first, last):
            length = np.int64(lengths[k])
            sums[i] += length * length if squared else length
    return sums
