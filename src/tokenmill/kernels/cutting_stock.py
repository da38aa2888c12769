"""Loops of the search for the fewest sequences: a knapsack over sizes, and filling patterns.

A pattern is the sizes that share a sequence, decreasing. Lists of patterns are offsets and sizes.
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inner


@compiled
def best_patterns(
    prices: Int64Array, sizes: Int32Array, length: int, depth: int
) -> tuple[np.int64, Int64Array, Int32Array]:
    """Return the highest value of a pattern, and the best pattern that contains each size.

    `prices` and the increasing `sizes` have shape (m,). Patterns are returned as offsets and
    decreasing sizes. `depth` limits the pieces of a pattern, with a layer of the knapsack for each;
    0 is no limit.
    """
    worth, last = _knapsack(prices, sizes, length, depth)
    most = np.int64(0)
    offsets, slots = [0], [np.int32(0) for _ in range(0)]
    for i in range(len(sizes)):
        layer, room, start = len(worth) - 1, length - sizes[i], len(slots)
        most = max(most, prices[i] + worth[layer, room])
        slots.append(sizes[i])
        while layer > 0 and worth[layer, room] > 0:
            size = last[layer, room]
            if size > 0:
                slots.append(size)
                room -= size
            if depth > 0:
                layer -= 1
            elif size == 0:
                room -= 1
        slots[start:] = sorted(slots[start:], reverse=True)
        offsets.append(len(slots))
    return most, np.array(offsets), np.array(slots, np.int32)


@inner
def _knapsack(
    prices: Int64Array, sizes: Int32Array, length: int, depth: int
) -> tuple[Int64Array, Int32Array]:
    """Return the highest value for each layer and room, and a size in it (0: as one layer less)."""
    layers = depth - 1 if depth > 0 else 1
    worth = np.zeros((layers + 1, length + 1), np.int64)
    last = np.zeros((layers + 1, length + 1), np.int32)
    for layer in range(1, layers + 1):
        before = worth[layer - 1] if depth > 0 else worth[layer]
        best, choice = worth[layer], last[layer]
        best[:] = worth[layer - 1]
        cheaper = np.int64(0)
        for i in range(len(sizes)):
            # Skip a size if a smaller one has the same price or a higher one.
            if prices[i] <= cheaper:
                continue
            cheaper = prices[i]
            for room in range(sizes[i], length + 1):
                value = before[room - sizes[i]] + cheaper
                if value > best[room]:
                    best[room] = value
                    choice[room] = sizes[i]
    return worth, last


@compiled
def fullest_first(
    left: Int64Array, length: int, max_segments: int, work: int
) -> tuple[Int64Array, Int32Array, Int64Array, Int64Array]:
    """Return patterns that fill one sequence after another, their times, and the pieces left."""
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


@compiled
def fill_patterns(
    offsets: Int64Array, slots: Int32Array, times: Int64Array, left: Int64Array, complete: bool
) -> tuple[Int64Array, Int32Array, Int64Array]:
    """Return the patterns that pieces fill, and their times. `times` and `left` are updated."""
    filled_offsets, filled_sizes, filled_times = [0], [np.int32(0) for _ in range(0)], [0][:0]
    # Exact slots first, because a piece in a longer slot must not be missing in its own.
    for exact in (True, False):
        for i in range(len(times)):
            pattern = slots[offsets[i] : offsets[i + 1]]
            while times[i] > 0:
                chosen = _chosen(pattern, left, exact)
                found = np.count_nonzero(chosen)
                if found == 0 or (found < len(pattern) and (exact or complete)):
                    break
                repeats, equal = times[i], 0
                for j in range(found):
                    equal = equal + 1 if j > 0 and chosen[j] == chosen[j - 1] else 1
                    repeats = min(repeats, left[chosen[j]] // equal)
                for j in range(found):
                    left[chosen[j]] -= repeats
                    filled_sizes.append(chosen[j])
                filled_offsets.append(len(filled_sizes))
                filled_times.append(repeats)
                times[i] -= repeats
    return np.array(filled_offsets), np.array(filled_sizes, np.int32), np.array(filled_times)


@compiled
def _chosen(pattern: Int32Array, left: Int64Array, exact: bool) -> Int32Array:
    """Return the sizes of the pieces for the slots of a pattern, decreasing; 0 if none is left."""
    chosen = np.zeros(len(pattern), np.int32)
    equal = 0
    for j in range(len(pattern)):
        size = pattern[j]
        if j > 0 and chosen[j - 1] <= size:
            size = chosen[j - 1]
        else:
            equal = 0
        while size > 0 and left[size] <= equal:
            if exact:
                return chosen
            size -= 1
            equal = 0
        if size == 0:
            break
        chosen[j] = size
        equal += 1
    return chosen


@compiled
def assign_patterns(
    sizes: Int32Array,
    counts: Int64Array,
    offsets: Int64Array,
    pattern_sizes: Int32Array,
    times: Int64Array,
) -> Int32Array:
    """Return the sequence of each piece, shape (n,). Pieces of one size are used in order."""
    order = np.empty(len(sizes), np.int32)
    place = np.cumsum(counts) - counts
    for piece in range(len(sizes)):
        order[place[sizes[piece]]] = piece
        place[sizes[piece]] += 1
    place -= counts
    sequence_of = np.empty(len(sizes), np.int32)
    sequence = 0
    for pattern in range(len(times)):
        for _ in range(times[pattern]):
            for i in range(offsets[pattern], offsets[pattern + 1]):
                size = pattern_sizes[i]
                sequence_of[order[place[size]]] = sequence
                place[size] += 1
            sequence += 1
    return sequence_of
