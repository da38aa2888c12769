"""Choose the language for the next merge."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined, inner

NOBODY = -1


class Turns(NamedTuple):
    """The state that decides the next turn; shape (num_languages,) unless noted otherwise."""

    lengths: Int64Array
    """Current tokens of the development text, or of the training text if there are ratios."""
    initial: Int64Array
    """Tokens before the first merge."""
    ratios: npt.NDArray[np.float64]
    """The wanted compression of each language; shape (0,) to compare lengths only."""
    exhausted: npt.NDArray[np.bool_]
    """Languages without a pair that is frequent enough."""
    recent: Int32Array
    """Shape (window,): a ring buffer of the languages of recent turns; (0,) without a window."""
    num_recent: Int64Array
    """The number of recent turns of each language."""
    passed: npt.NDArray[np.bool_]
    """Languages that had too many recent turns."""
    num_turns: Int64Array
    """Shape (1,): the number of turns so far."""


@compiled
def next_turn(turns: Turns, most: float) -> int:
    """Return the language of the next merge; `most` is the highest share of recent turns."""
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


@inner
def _neediest(turns: Turns) -> int:
    """Return the language compressed worst, of those neither exhausted nor skipped."""
    best = NOBODY
    for one in range(len(turns.lengths)):
        if turns.exhausted[one] or turns.passed[one]:
            continue
        if best == NOBODY or _needs_more(turns, one, best):
            best = one
    return best


@inner
def _neediest_in_window(turns: Turns, most: float) -> int:
    """Choose like the reference, also if all languages had too many recent turns.

    If all had too many, the language compressed best is chosen. If some are exhausted and all
    others had too many, the reference wastes turns on the first language until its share is too
    large too; after that, or if the first language is not exhausted, the reference never returns.
    Here the language compressed worst is then chosen.
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
