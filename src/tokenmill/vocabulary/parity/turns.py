"""Whose turn it is: the language that the next merge is chosen for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import compiled, inlined
from tokenmill.records import Int32Array, Int64Array

NOBODY = -1


class Turns(NamedTuple):
    """What decides whose turn it is; shape (num_languages,) unless said otherwise."""

    lengths: Int64Array
    """Tokens so far: of the development text, or of the training text where there are ratios."""
    initial: Int64Array
    """Tokens before the first merge."""
    ratios: npt.NDArray[np.float64]
    """Wanted compression of each language; shape (0,) to go by lengths."""
    exhausted: npt.NDArray[np.bool_]
    """Languages without a pair that is frequent enough."""
    recent: Int32Array
    """Shape (window,): who had the last turns, in a circle; shape (0,) without a window."""
    num_recent: Int64Array
    """How many of these each one had."""
    passed: npt.NDArray[np.bool_]
    """Those that had too many."""
    num_turns: Int64Array
    """Shape (1,): turns so far."""


@compiled
def next_turn(turns: Turns, most: float) -> int:
    """Whose turn it is; `most` is the share of the last turns above which one is passed over."""
    if len(turns.recent) == 0:
        return _neediest(turns)
    chosen = _neediest_in_window(turns, most)
    place = turns.num_turns[0] % len(turns.recent)
    if turns.num_turns[0] >= len(turns.recent):
        turns.num_recent[turns.recent[place]] -= 1
    turns.recent[place] = chosen
    turns.num_recent[chosen] += 1
    turns.num_turns[0] += 1
    return chosen


@inlined
def _needs_more(turns: Turns, one: int, other: int) -> bool:
    if len(turns.ratios) == 0:
        return bool(turns.lengths[one] > turns.lengths[other])
    compression = turns.initial[one] / turns.lengths[one] / turns.ratios[one]
    return bool(compression < turns.initial[other] / turns.lengths[other] / turns.ratios[other])


@compiled
def _neediest(turns: Turns) -> int:
    """The language that is worst off of those that are neither exhausted nor passed over."""
    best = NOBODY
    for one in range(len(turns.lengths)):
        if turns.exhausted[one] or turns.passed[one]:
            continue
        if best == NOBODY or _needs_more(turns, one, best):
            best = one
    return best


@compiled
def _neediest_in_window(turns: Turns, most: float) -> int:
    """As the reference has it, also where nobody may be chosen.

    If all had too many turns, the one that is best off gets it. If some are exhausted and all
    others had too many, the first language loses turns until its own share is too large; from
    there on, and if the first one is not exhausted, the reference never returns. Here the language
    that is worst off gets the turn.
    """
    turns.passed[:] = False
    worst_off = _neediest(turns)
    last, chosen = worst_off, worst_off
    while chosen != NOBODY:
        if turns.num_recent[chosen] / len(turns.recent) <= most:
            return chosen
        turns.passed[chosen] = True
        last = chosen
        chosen = _neediest(turns)
    num_exhausted = turns.exhausted.sum()
    if num_exhausted == 0:
        return last
    if turns.exhausted[0]:
        loses = turns.num_recent[0] / len(turns.recent) <= most
        if loses or num_exhausted == 1:
            return 0
    return worst_off
