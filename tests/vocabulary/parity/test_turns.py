"""Whose turn it is where the reference has rules of its own, or never returns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tokenmill.vocabulary.parity.turns import Turns, next_turn


def turns(lengths: Sequence[int], recent: Sequence[int], exhausted: Sequence[int] = ()) -> Turns:
    """After `recent` turns, which fill the window."""
    number = len(lengths)
    return Turns(
        lengths=np.array(lengths, np.int64),
        initial=np.array(lengths, np.int64),
        ratios=np.empty(0, np.float64),
        exhausted=np.isin(np.arange(number), exhausted),
        recent=np.array(recent, np.int32),
        num_recent=np.bincount(recent, minlength=number),
        passed=np.zeros(number, np.bool_),
        num_turns=np.array([len(recent)], np.int64),
    )


@pytest.mark.parametrize(
    ("case", "most", "chosen"),
    [
        (turns([5, 9, 7], [0, 0, 1, 2]), 0.5, 1),
        (turns([5, 9, 7], [1, 1, 1, 2]), 0.5, 2),  # the worst off had 3 of 4 turns
        (turns([5, 9, 7], [0, 1, 2, 1]), 0.0, 0),  # all had too many: the best off
        (turns([5, 9, 7], [1, 1, 2, 2], [0]), 0.0, 0),  # exhausted; the library loses turns there
        (turns([5, 9, 7], [0, 0, 1, 2], [0]), 0.0, 0),  # no other one is exhausted
        (turns([5, 9, 7], [0, 0, 1, 1], [2]), 0.0, 1),  # the library never returns
        (turns([5, 9, 7], [0, 0, 1, 1], [0, 2]), 0.0, 1),  # nor here
    ],
)
def test_in_a_window(case: Turns, most: float, chosen: int) -> None:
    assert next_turn(case, most) == chosen


def test_turns_leave_the_window_in_their_order() -> None:
    case = turns([9, 8], [0, 0, 1, 1])
    chosen = [next_turn(case, 0.5) for _ in range(6)]
    assert chosen == [0, 0, 0, 1, 1, 0]
    assert case.num_recent.sum() == 4
