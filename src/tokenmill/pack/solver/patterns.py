"""Patterns: the sizes that share a sequence, and how often each pattern is used.

Pieces of equal size are interchangeable, so a few hundred patterns describe the packing of millions
of pieces. The cost of these functions depends on the number of sizes, not of pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.pack.histogram import best_fit


@dataclass(frozen=True, slots=True)
class Patterns:
    """Pattern i is `sizes[offsets[i]:offsets[i + 1]]`, decreasing, and is used `times[i]` times."""

    offsets: Int64Array
    """Shape (num_patterns + 1,)."""
    sizes: Int32Array
    """Sizes in tokens of all patterns, one pattern after another."""
    times: Int64Array
    """Shape (num_patterns,)."""

    def __len__(self) -> int:
        return len(self.times)

    @property
    def num_sequences(self) -> int:
        """Number of sequences that the patterns fill."""
        return int(self.times.sum())


def joined(parts: list[Patterns]) -> Patterns:
    """Concatenate patterns."""
    lengths = [np.diff(part.offsets) for part in parts]
    return Patterns(
        offsets_from_lengths(np.concatenate(lengths)),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.times for part in parts]),
    )


def best_fit_decreasing(counts: Int64Array, length: int, max_segments: int) -> Patterns:
    """Return the patterns of best-fit decreasing for `counts[s]` pieces of size s."""
    rows = best_fit(counts, length, max_segments).rows
    firsts, stops = rows[:, 1], rows[:, 1] + rows[:, 2]
    # All sequences between two edges have the same contents. A placement covers one or more runs.
    edges = np.unique(np.concatenate([firsts, stops]))
    low, high = np.searchsorted(edges, firsts), np.searchsorted(edges, stops)
    row = np.repeat(np.arange(len(rows)), high - low)
    within = np.arange(len(row)) - offsets_from_lengths(high - low)[row]
    run = low[row] + within
    order = np.argsort(run, kind="stable")  # keeps the sizes of a run decreasing
    repeats = rows[row[order], 3]
    ends = np.searchsorted(run[order], np.arange(len(edges)))
    return Patterns(
        offsets_from_lengths(repeats)[ends],
        np.repeat(rows[row[order], 0], repeats).astype(np.int32),
        np.diff(edges),
    )


def fullest_first(counts: Int64Array, length: int, max_segments: int, work: int) -> Patterns:
    """Fill one sequence after another: take the longest piece left, then fill the room best.

    Of the sets of pieces that fill it best, take one with long pieces, so that short ones are left
    for later. This is the minimum bin slack heuristic of Fleszar & Hindi, "New heuristics for
    one-dimensional bin-packing" (2002). `work` limits the steps, about a nanosecond each. The rest
    is packed by best-fit decreasing.
    """
    offsets, sizes, times, left = _fullest(counts.copy(), length, max_segments, work)
    rest = best_fit_decreasing(left, length, max_segments)
    return joined([Patterns(offsets, sizes, times), rest])


@compiled
def _fullest(
    left: Int64Array, length: int, max_segments: int, work: int
) -> tuple[Int64Array, Int32Array, Int64Array, Int64Array]:
    offsets, sizes, times = [0], [np.int32(0) for _ in range(0)], [0][:0]
    last = np.empty(length + 1, np.int32)
    segments = np.empty(length + 1, np.int64)
    longest = length
    while work > 0:
        while longest > 0 and left[longest] == 0:
            longest -= 1
        if longest == 0:
            break
        left[longest] -= 1
        used, steps = _reach(left, longest, length - longest, max_segments, last, segments)
        work -= steps
        left[longest] += 1
        start = len(sizes)
        while used > 0:
            sizes.append(last[used])
            used -= last[used]
        sizes.append(np.int32(longest))
        sizes[start:] = sizes[start:][::-1]
        # Repeat the same choice as long as there are pieces for it.
        repeats, equal = left[longest], 0
        for i in range(start, len(sizes)):
            equal = equal + 1 if i > start and sizes[i] == sizes[i - 1] else 1
            repeats = min(repeats, left[sizes[i]] // equal)
        for i in range(start, len(sizes)):
            left[sizes[i]] -= repeats
        offsets.append(len(sizes))
        times.append(repeats)
    return np.array(offsets), np.array(sizes, np.int32), np.array(times, np.int64), left


@inner
def _reach(
    left: Int64Array,
    longest: int,
    room: int,
    max_segments: int,
    last: Int32Array,
    segments: Int64Array,
) -> tuple[int, int]:
    """Return the most of a room that pieces can fill, and the steps taken.

    Computes subset sums, long pieces first. For the first set found for each sum, sets `last` to
    its shortest piece, shape (length + 1,), and `segments` to its number of pieces, including the
    longest piece of the sequence.
    """
    segments[: room + 1] = max_segments + 1
    segments[0] = 1
    most, steps = 0, room
    for size in range(min(longest, room), 0, -1):
        for _ in range(min(left[size], room // size)):
            reached = False
            stop = min(most + size, room)
            steps += stop - size + 1
            for total in range(stop, size - 1, -1):
                if segments[total] > max_segments and segments[total - size] < max_segments:
                    segments[total] = segments[total - size] + 1
                    last[total] = size
                    reached = True
                    most = max(most, total)
            if most == room:
                return most, steps
            if not reached:
                break
    return most, steps
