"""Search for the fewest sequences, over patterns of sizes.

Pieces of one size are interchangeable, so the search costs the same for thousands of pieces as for
millions. It tries these methods in turn until the packing reaches a lower bound: best-fit
decreasing; filling sequences one by one; the linear relaxation of Gilmore & Gomory (1961), rounded
down repeatedly, with the rest packed by the first two; an integer program of its columns. The
search is limited by steps and not by time, so its result does not depend on the machine.
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import FloatArray, Int64Array, Sequences
from tokenmill.kernels import cutting_stock as kernel
from tokenmill.pack.column_generation import (
    TOLERANCE,
    WORK,
    Patterns,
    Relaxation,
    best_fit_decreasing,
    fullest_first,
    joined,
    simple_bound,
)
from tokenmill.pack.histogram import count_sizes
from tokenmill.pack.strategy import Pieces, deal


def fewer_sequences(pieces: Pieces, length: int, max_segments: int) -> Sequences | None:
    """Pack pieces by the best patterns found; None if best-fit decreasing is as good."""
    counts = count_sizes(pieces.sizes, length)
    patterns = fewest_sequences(counts, length, max_segments)
    if patterns is None:
        return None
    offsets, sizes, times = patterns.offsets, patterns.sizes, patterns.times
    return deal(pieces, kernel.assign_patterns(pieces.sizes, counts, offsets, sizes, times))


def fewest_sequences(counts: Int64Array, length: int, max_segments: int) -> Patterns | None:
    """Return patterns for `counts[s]` pieces of size s; None if best-fit decreasing is as good."""
    if np.count_nonzero(counts) * length > WORK:
        return None
    greedy = best_fit_decreasing(counts, length, max_segments)
    bound = simple_bound(counts, length, max_segments)
    if greedy.num_sequences == bound:
        return None
    best = _fewer(greedy, fullest_first(counts, length, max_segments, WORK))
    if best.num_sequences > bound:
        relaxation = Relaxation(counts, length, max_segments)
        for patterns in (greedy, best):
            relaxation.add(patterns)
        bound = max(bound, relaxation.generate(counts, bound))
        if best.num_sequences > bound:
            best = _rounded(relaxation, counts, best, bound)
    return best if best.num_sequences < greedy.num_sequences else None


def _rounded(relaxation: Relaxation, counts: Int64Array, best: Patterns, bound: int) -> Patterns:
    """Round the relaxation step by step: fix patterns, then solve for the remaining pieces.

    Return patterns that are as good as `best` or better. If few pieces remain after the first step,
    also solve them as an integer program.
    """
    fixed, left = _no_patterns(), counts
    while True:
        columns = relaxation.patterns(_whole_times(relaxation.times))
        filled, left = fill(columns, left, complete=True)
        if not len(filled):
            return best
        is_first = not len(fixed)
        fixed = joined([fixed, filled])
        best = _fewer(best, _completed(fixed, left, relaxation))
        if is_first and best.num_sequences > bound:
            times = relaxation.whole_times(left, best.num_sequences - fixed.num_sequences)
            if times is not None:
                filled, rest = fill(relaxation.patterns(times), left, complete=False)
                best = _fewer(best, _completed(joined([fixed, filled]), rest, relaxation))
        if best.num_sequences == bound or not relaxation.affordable:
            return best
        least = relaxation.generate(left, bound - fixed.num_sequences)
        if fixed.num_sequences + least >= best.num_sequences:
            return best


def _whole_times(times: FloatArray) -> Int64Array:
    """Round times down. If all become 0, set those closest to one to 1, for half of the sum."""
    whole = np.floor(times + TOLERANCE).astype(np.int64)
    if not whole.any():
        count = max(1, int(times.sum() / 2))
        whole[np.argsort(-times, kind="stable")[:count]] = 1
    return whole


def _completed(fixed: Patterns, left: Int64Array, relaxation: Relaxation) -> Patterns:
    length, max_segments = relaxation.length, relaxation.max_segments
    greedy = best_fit_decreasing(left, length, max_segments)
    rest = _fewer(greedy, fullest_first(left, length, max_segments, WORK >> 6))
    return joined([fixed, rest])


def _fewer(first: Patterns, second: Patterns) -> Patterns:
    return second if second.num_sequences < first.num_sequences else first


def _no_patterns() -> Patterns:
    return Patterns(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))


def fill(slots: Patterns, counts: Int64Array, *, complete: bool) -> tuple[Patterns, Int64Array]:
    """Put pieces into the slots of patterns. Return the filled patterns, and the remaining counts.

    A slot takes a piece of its size, or, if none is left, the longest shorter one. A pattern is
    used as long as every slot (`complete`), or any slot, gets a piece.
    """
    left = counts.copy()
    fields = kernel.fill_patterns(slots.offsets, slots.sizes, slots.times.copy(), left, complete)
    return Patterns(*fields), left
