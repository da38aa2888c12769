"""Search for the fewest sequences, over patterns of sizes.

Pieces of one size are interchangeable, so the search costs the same for thousands of pieces as for
millions. It tries these methods in turn until the packing reaches a lower bound: best-fit
decreasing; filling sequences one by one; the linear relaxation of Gilmore & Gomory (1961), rounded
down repeatedly, with the rest packed by the first two; an integer program of its columns. The
search is limited by steps and not by time, so its result does not depend on the machine.

The relaxation is solved by column generation ("A Linear Programming Approach to the Cutting-Stock
Problem"). A column is a pattern: a set of sizes that fits in a sequence. The relaxation uses each
pattern a fractional number of times, so that there is a slot for every piece. Its dual values are
prices of sizes. A knapsack finds patterns that are worth more than one sequence at these prices,
and adds them as columns, until there are none.

Two techniques make this fast. A slot can hold a shorter piece: columns that exchange a slot for the
next smaller one keep the prices monotonic (Valerio de Carvalho, "Using extra dual cuts to
accelerate column generation", 2005). And patterns are searched at prices between the current and
the best ones so far, which keeps prices from oscillating (Wentges, "Weighted Dantzig-Wolfe
decomposition for linear mixed-integer programming", 1997).
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from tokenmill.core.records import FloatArray, Int32Array, Int64Array, Sequences
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels import cutting_stock as kernel
from tokenmill.packing.histogram import best_fit, count_sizes
from tokenmill.packing.strategy import Pieces, deal

PRICE_OF_SEQUENCE = 1 << 40
"""Prices are integers in this unit, so that the value of a pattern is exact."""
TOLERANCE = 1e-6
WORK = 1 << 31
"""Limit on the steps of each part of the search, about a nanosecond each."""
STEP_COST = 16
"""Steps of work per row in an iteration of the simplex method."""
MOST_PIECES, MOST_COLUMNS, MOST_NODES = 2000, 1500, 200
"""Limits of the integer program: remaining pieces, columns, and nodes of its search."""
MOST_ROUNDS = 300
MOST_STATES = 1 << 26
"""Limit on the states of a knapsack, about 12 bytes each."""
SMOOTHING = 0.3
"""The weight of the best prices so far against those of the last solution."""


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
    offsets, sizes, times, left = kernel.fullest_first(counts.copy(), length, max_segments, work)
    rest = best_fit_decreasing(left, length, max_segments)
    return joined([Patterns(offsets, sizes, times), rest])


def simple_bound(counts: Int64Array, length: int, max_segments: int) -> int:
    """Return a lower bound for `counts[s]` pieces of size s, from their tokens and number."""
    tokens, num_pieces = int(counts @ np.arange(length + 1)), int(counts.sum())
    return max(-(-tokens // length), -(-num_pieces // max_segments))


def lp_bound(counts: Int64Array, length: int, max_segments: int) -> int:
    """Return a lower bound from the relaxation, solved as far as the work limit allows."""
    bound = simple_bound(counts, length, max_segments)
    if not bound or np.count_nonzero(counts) * length > WORK:
        return bound
    relaxation = Relaxation(counts, length, max_segments)
    relaxation.add(best_fit_decreasing(counts, length, max_segments))
    return max(bound, relaxation.generate(counts, bound))


class Relaxation:
    """The linear program for all pieces, and later for the remaining ones."""

    def __init__(self, counts: Int64Array, length: int, max_segments: int) -> None:
        self.sizes = np.flatnonzero(counts).astype(np.int32)
        self.length, self.max_segments = length, max_segments
        # Ignore a limit that not even the smallest pieces can reach.
        limited = max_segments < length // int(self.sizes[0])
        self.depth = max_segments if limited else 0
        self.work = WORK
        """Remaining steps, about a nanosecond each."""
        self.times: FloatArray = np.empty(0)
        """How often the last solution uses each pattern, shape (num_patterns,)."""
        self.value = 0.0
        """Number of sequences in the last solution."""
        self._offsets = [np.zeros(1, np.int64)]
        self._slots: list[Int32Array] = []
        self._program = _empty_program(len(self.sizes))

    def patterns(self, times: Int64Array) -> Patterns:
        """Return the columns as patterns used `times` times, in the shape of `self.times`."""
        offsets = np.concatenate(self._offsets)[: len(times) + 1]
        return Patterns(offsets, np.concatenate(self._slots)[: offsets[-1]], times)

    @property
    def affordable(self) -> bool:
        """Return whether another round fits in the work limit."""
        states = max(self.depth, 1) * self.length
        return states < MOST_STATES and self.work > states * len(self.sizes)

    def add(self, patterns: Patterns) -> None:
        """Add patterns as columns."""
        rows = np.searchsorted(self.sizes, patterns.sizes).astype(np.int32)
        column = np.repeat(np.arange(len(patterns)), np.diff(patterns.offsets))
        differs = (np.diff(rows, prepend=-1) != 0) | (np.diff(column, prepend=-1) != 0)
        first = np.flatnonzero(differs)
        values = np.diff(first, append=len(rows)).astype(np.float64)
        starts = np.searchsorted(first, patterns.offsets[:-1]).astype(np.int32)
        _add_columns(self._program, 1.0, starts, rows[first], values)
        self._offsets.append(self._offsets[-1][-1] + patterns.offsets[1:])
        self._slots.append(patterns.sizes)

    def generate(self, counts: Int64Array, enough: int = 0) -> int:
        """Solve for these pieces, and add columns until no better solution exists.

        Return a lower bound on the sequences. It is exact despite the solver's rounding, because it
        is a sum of integer prices, at which no pattern is worth more than the best one found. Stop
        early at a solution of at most `enough` sequences, and at the work limit.
        """
        demand = counts[self.sizes]
        for row, pieces in enumerate(demand.tolist()):
            self._program.changeRowBounds(row, float(pieces), highspy.kHighsInf)
        bound = 0
        center = self.sizes / self.length
        for _ in range(MOST_ROUNDS):
            prices = self._solve()
            if prices is None or np.ceil(self.value - TOLERANCE) <= max(enough, bound):
                break
            for weight in (SMOOTHING, 0.0):
                mixed = np.floor((weight * center + (1 - weight) * prices) * PRICE_OF_SEQUENCE)
                worth, found = self._price(mixed.astype(np.int64))
                total = sum(
                    int(price) * int(pieces) for price, pieces in zip(mixed, demand, strict=True)
                )
                proven = -(-total // worth)
                if proven > bound:
                    bound, center = proven, mixed / worth
                found = _worth_more(found, self.sizes, prices)
                if len(found):
                    break
            if not len(found):
                break
            self.add(found)
        return bound

    def _solve(self) -> FloatArray | None:
        """Set `value` and `times`, and return the prices, or None at the work limit."""
        if not self.affordable:
            return None
        rows = len(self.sizes)
        # A step of the simplex method takes a few passes over the rows.
        self._program.setOptionValue("simplex_iteration_limit", self.work // (STEP_COST * rows))
        self._program.run()
        self.work -= self._program.getInfo().simplex_iteration_count * STEP_COST * rows
        if self._program.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self.work = 0
            return None
        solution = self._program.getSolution()
        self.times = np.array(solution.col_value)[rows:]
        self.value = self._program.getObjectiveValue()
        prices: FloatArray = np.maximum(np.array(solution.row_dual), 0)
        return prices

    def _price(self, prices: Int64Array) -> tuple[int, Patterns]:
        """Return the highest value of a pattern, and the best pattern that contains each size."""
        self.work -= max(self.depth, 1) * len(self.sizes) * self.length
        worth, offsets, slots = kernel.best_patterns(prices, self.sizes, self.length, self.depth)
        return int(worth), Patterns(offsets, slots, np.zeros(len(offsets) - 1, np.int64))

    def whole_times(self, counts: Int64Array, fewer_than: int) -> Int64Array | None:
        """Return whole times of the columns that place all pieces in `fewer_than` sequences.

        Solve an integer program of the columns that can be part of such a solution. A column cannot
        if its reduced cost alone exceeds the difference. Return None if the program is too large or
        finds nothing.
        """
        if counts.sum() > MOST_PIECES:
            return None
        self.generate(counts)
        if not self.affordable:
            return None
        program, rows = self._program, len(self.sizes)
        reduced_cost = np.array(program.getSolution().col_dual)
        useful = reduced_cost <= fewer_than - 1 - self.value + TOLERANCE
        useful[:rows] = True
        if useful.sum() > rows + MOST_COLUMNS:
            return None
        times = self._integer_program(np.where(useful, highspy.kHighsInf, 0.0))
        return times if 0 < times.sum() < fewer_than else None

    def _integer_program(self, most: FloatArray) -> Int64Array:
        """Return whole times of all columns, at most `most`. The program is linear afterwards."""
        program, total = self._program, len(most)
        columns, none = np.arange(total, dtype=np.int32), np.zeros(total)
        program.changeColsBounds(total, columns, none, most)
        program.changeColsIntegrality(total, columns, np.ones(total, np.uint8))
        program.setOptionValue("presolve", "on")
        program.run()
        values: FloatArray = np.array(program.getSolution().col_value)[len(self.sizes) :]
        program.setOptionValue("presolve", "off")
        program.changeColsIntegrality(total, columns, np.zeros(total, np.uint8))
        program.changeColsBounds(total, columns, none, np.full(total, highspy.kHighsInf))
        times: Int64Array = np.rint(values).astype(np.int64)
        return times


def _empty_program(num_rows: int) -> highspy.Highs:
    """Return a program with a row per size, for enough slots, and the columns for exchanges."""
    program = highspy.Highs()  # type: ignore[no-untyped-call]
    program.setOptionValue("output_flag", False)
    program.setOptionValue("threads", 1)
    program.setOptionValue("parallel", "off")
    program.setOptionValue("presolve", "off")
    program.setOptionValue("mip_max_nodes", MOST_NODES)
    program.setOptionValue("mip_abs_gap", 1 - TOLERANCE)
    none = np.empty(0, np.int32)
    infinite = np.full(num_rows, highspy.kHighsInf)
    zeros = np.zeros(num_rows, np.int32)
    program.addRows(num_rows, np.zeros(num_rows), infinite, 0, zeros, none, np.empty(0))
    # Column i takes a slot from row i and gives it to row i - 1; column 0 leaves a slot empty.
    rows = np.repeat(np.arange(num_rows, dtype=np.int32), 2)[:-1]
    values = np.where(np.arange(len(rows)) % 2, 1.0, -1.0)
    starts = np.maximum(np.arange(num_rows, dtype=np.int32) * 2 - 1, 0)
    _add_columns(program, 0.0, starts, rows, values)
    return program


def _add_columns(
    program: highspy.Highs, cost: float, starts: Int32Array, rows: Int32Array, values: FloatArray
) -> None:
    count = len(starts)
    most = np.full(count, highspy.kHighsInf)
    costs = np.full(count, cost)
    program.addCols(count, costs, np.zeros(count), most, len(rows), starts, rows, values)


def _worth_more(found: Patterns, sizes: Int32Array, prices: FloatArray) -> Patterns:
    """Return the patterns that are worth more than a sequence, without duplicates."""
    worth = np.add.reduceat(prices[np.searchsorted(sizes, found.sizes)], found.offsets[:-1])
    chosen = {
        found.sizes[found.offsets[i] : found.offsets[i + 1]].tobytes()
        for i in np.flatnonzero(worth > 1 + TOLERANCE / 1000)
    }
    slots = [np.frombuffer(pattern, np.int32) for pattern in sorted(chosen)]
    offsets = offsets_from_lengths([len(pattern) for pattern in slots])
    joined = np.concatenate(slots) if slots else np.empty(0, np.int32)
    return Patterns(offsets, joined, np.zeros(len(slots), np.int64))


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
    fixed = Patterns(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    left = counts
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


def fill(slots: Patterns, counts: Int64Array, *, complete: bool) -> tuple[Patterns, Int64Array]:
    """Put pieces into the slots of patterns. Return the filled patterns, and the remaining counts.

    A slot takes a piece of its size, or, if none is left, the longest shorter one. A pattern is
    used as long as every slot (`complete`), or any slot, gets a piece.
    """
    left = counts.copy()
    fields = kernel.fill_patterns(slots.offsets, slots.sizes, slots.times.copy(), left, complete)
    return Patterns(*fields), left
