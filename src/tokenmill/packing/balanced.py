"""Balanced: groups of sequences with similar attention costs, for ranks that wait for each other.

The cost of a sequence is the sum of its squared piece sizes, like that of attention within
segments. Each step gets a group of `ranks` sequences. The goals, in this order, are few groups,
complete groups (which needs enough pieces, at least one per sequence), and equal costs in a group.
For 2 ranks, sequences of 8 and pieces of 4, 2, 2, 2, 2 tokens give [4] [2 2 2 2] with costs of 16
and 16. Best-fit gives [4 2 2] [2 2] with costs of 24 and 8.

The longest pieces go first, each into the sequence of lowest cost that has room for it (the rule of
R. L. Graham, Bounds on multiprocessing timing anomalies, 1969). This leaves similar room in all
sequences. If the rest does not fit, shorter pieces, or at last all pieces, go by best fit instead.
Then sequences with similar costs form a group. O(n log n), 100 to 200 ns per piece.
"""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int32Array, Sequences
from tokenmill.kernels.even_packing import (
    Filling,
    costs_and_first_pieces,
    longest_pieces,
    new_filling,
    place_by_best_fit,
    place_evenly,
    split_costliest,
)
from tokenmill.kernels.interpreted import for_steps
from tokenmill.packing.histogram import longest_first
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategy import Pieces, deal

EVEN_TENTHS = (10, 7)
"""Shares of all tokens, in tenths, that go by cost, longest pieces first. Tried in this order."""


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Pack pieces into groups of `options.ranks` sequences of similar cost."""
    sequence_of = np.empty(0, np.int32)
    if len(pieces) > 0:
        sequence_of = _in_groups(pieces.sizes, _assign(pieces.sizes, options), options.ranks)
    return deal(pieces, sequence_of, renumber=False)


def _assign(sizes: Int32Array, options: PackOptions) -> Int32Array:
    """Return the sequence of each piece, shape (n,), with the fewest groups found."""
    order = longest_first(sizes, options.length)
    best_fit = new_filling(len(sizes), len(sizes), options.length, options.segment_limit)
    place = for_steps(place_by_best_fit, len(sizes))
    num_best_fit = place(sizes, order, 0, 0, best_fit)
    fewest = -(-_least_sequences(sizes, options) // options.ranks)
    groups = -(-num_best_fit // options.ranks)
    found = None
    # With a low limit on segments, placing by cost may need fewer sequences than best fit.
    # Otherwise it seldom does, and a trial takes twice as long as best fit.
    limited = best_fit.segments_left[:num_best_fit].min() == 0
    for _ in range(4 if limited else 1):
        if fewest >= groups:
            break
        middle = (fewest + groups) // 2
        trial = _try(sizes, order, 10, middle, options)
        if trial is None:
            fewest = middle + 1
        else:
            found, groups = trial, middle
    if found is None:
        trials = (_try(sizes, order, tenths, groups, options) for tenths in EVEN_TENTHS)
        found = next((trial for trial in trials if trial is not None), None)
    if found is None:
        num_sequences = min(groups * options.ranks, len(sizes))
        split = for_steps(split_costliest, 2 * len(sizes))
        split(sizes, order, best_fit.sequence_of, num_best_fit, num_sequences)
        found = best_fit
    return found.sequence_of


def _least_sequences(sizes: Int32Array, options: PackOptions) -> int:
    """Return a lower bound on sequences, from tokens, segments, and pieces over half a sequence."""
    by_tokens = -(-int(sizes.sum(dtype=np.int64)) // options.length)
    by_segments = -(-len(sizes) // options.segment_limit)
    return max(by_tokens, by_segments, int(np.count_nonzero(sizes > options.length // 2)))


def _try(
    sizes: Int32Array, order: Int32Array, tenths: int, groups: int, options: PackOptions
) -> Filling | None:
    """Fill `groups` groups, with at least one piece per sequence. Return None if pieces remain."""
    num_sequences = min(groups * options.ranks, len(sizes))
    longest = for_steps(longest_pieces, len(sizes) // 4)(sizes, order, tenths)
    num_even = max(num_sequences, longest)
    filling = new_filling(len(sizes), num_sequences, options.length, options.segment_limit)
    placed = for_steps(place_evenly, 2 * len(sizes))(sizes, order, num_even, filling)
    place = for_steps(place_by_best_fit, len(sizes))
    if place(sizes, order, placed, num_sequences, filling) < 0:
        return None
    return filling


def _in_groups(sizes: Int32Array, sequence_of: Int32Array, ranks: int) -> Int32Array:
    """Number sequences so that those with similar costs form groups.

    Groups are sorted by their first piece in the corpus, and so are sequences in a group. So no
    rank always has the highest cost, and training does not start with the longest documents. An
    incomplete group comes last.
    """
    costs_of = for_steps(costs_and_first_pieces, len(sizes))
    costs, first_pieces = costs_of(sizes, sequence_of)
    num_sequences = len(costs)
    by_cost = np.argsort(-costs, kind="stable")
    first_pieces = first_pieces[by_cost]
    first_of_group = np.minimum.reduceat(first_pieces, np.arange(0, num_sequences, ranks))
    if num_sequences % ranks:
        first_of_group[-1] = len(sizes)
    group = np.arange(num_sequences) // ranks
    numbers = np.empty(num_sequences, np.int32)
    numbers[by_cost[np.lexsort((first_pieces, first_of_group[group]))]] = np.arange(num_sequences)
    return numbers[sequence_of]
