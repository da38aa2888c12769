"""How fast a run is and when it will end, from what was done at what time.

    seconds   0  10  20  30  40        MB of 100
    done      0   0  10  20  30        10 MB in 10 s since the first progress; 70 s are left

The speed is that of the last half of the time since the first progress, and of at least 30 s: a
slow start counts less and less. The interval assumes that the speed goes on varying as it did in
this time: then the end lies in it in more than 8 of 10 cases. It knows of no later change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

MIN_WINDOW_SECONDS = 30.0
NUM_BLOCKS = 8
"""Parts of equal length whose speeds are compared."""
QUANTILES = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89)
"""Of Student's t distribution with 1 to 7 degrees of freedom: 90 % lie between minus and plus."""
LEAST_ERROR = 0.05
"""The least standard error of a speed, as a share of it."""
MAX_POINTS = 3600
"""The most points that are kept: two hours of reports every two seconds."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """The time left of a run."""

    seconds: float
    least: float
    most: float | None
    """None if the speed varies so much, or is known for so short a time, that it may be any."""


def remaining(
    times: Sequence[float], done: Sequence[float], total: float, longest_unit: float = 0.0
) -> Remaining | None:
    """Estimate the time left, from the bytes done at increasing times. None without progress.

    The run cannot end before its last running unit, of which `longest_unit` is the time left.
    """
    at, sums = np.asarray(times, np.float64), np.asarray(done, np.float64)
    moved = np.flatnonzero(np.diff(sums))
    if not len(moved):
        return None
    begun = float(at[moved[0]])
    window = max((at[-1] - begun) / 2, min(at[-1] - begun, MIN_WINDOW_SECONDS))
    blocks = min(NUM_BLOCKS, int(np.count_nonzero(at > at[-1] - window)))
    edges = np.linspace(at[-1] - window, at[-1], blocks + 1)
    rates = np.diff(np.interp(edges, at, sums)) / (window / blocks)
    rate, left = float(rates.mean()), max(total - float(sums[-1]), 0.0)
    if rate <= 0:
        return None
    seconds, error = left / rate, rate
    if blocks > 1:
        further = max(seconds / (window / blocks), 1.0)
        spread = float(rates.std(ddof=1)) * (1 / blocks + 1 / further) ** 0.5
        error = QUANTILES[blocks - 2] * max(spread, LEAST_ERROR * rate)
    longer = max(longest_unit / seconds, 1.0) if seconds else 1.0
    most = left / (rate - error) * longer if error < rate else None
    return Remaining(seconds * longer, left / (rate + error) * longer, most)


@dataclass(slots=True)
class History:
    """What a run has done over time, in bounded memory. Attempts before a restart do not count."""

    attempt: str = ""
    points: deque[tuple[float, float, float]] = field(
        default_factory=partial(deque, maxlen=MAX_POINTS)
    )
    """Times with the bytes and tokens done."""

    def add(self, at: float, done: float, tokens: float, attempt: str = "") -> None:
        """Add what was done at a time; a point that is not later replaces the last one."""
        if attempt != self.attempt or (self.points and done < self.points[-1][1]):
            self.attempt = attempt
            self.points.clear()
        if self.points and at <= self.points[-1][0]:
            at = self.points.pop()[0]
        self.points.append((at, done, tokens))

    def remaining(self, total: float, longest_unit: float = 0.0) -> Remaining | None:
        """Estimate the time left of this attempt."""
        times, done, _ = zip(*self.points, strict=True) if self.points else ((), (), ())
        return remaining(times, done, total, longest_unit)

    @property
    def seconds(self) -> float:
        """The time between the first and the last point."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0

    def curve(self, parts: int) -> list[float]:
        """Return bytes a second in parts of equal length, not more than there are points."""
        return self._speeds(self.seconds, min(parts, len(self.points) - 1), 1)

    def late(self) -> tuple[float, float]:
        """Return bytes and tokens a second of the last 30 s."""
        window = min(self.seconds, MIN_WINDOW_SECONDS)
        return sum(self._speeds(window, 1, 1)), sum(self._speeds(window, 1, 2))

    def _speeds(self, window: float, parts: int, of: int) -> list[float]:
        if window <= 0:
            return []
        columns = np.array(self.points).T
        edges = np.linspace(columns[0, -1] - window, columns[0, -1], parts + 1)
        done = np.interp(edges, columns[0], columns[of])
        speeds: list[float] = (np.diff(done) * parts / window).tolist()
        return speeds
