"""Places to go on from, among steps each of which follows from the one before."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")

MOST_CHECKPOINTS = 256


class Checkpoints(Generic[T]):
    """What was known before some steps: evenly apart, and never more than 256 of them."""

    def __init__(self, before_first: T) -> None:
        self._values = {0: before_first}
        self._interval = 1

    def __reduce__(self) -> tuple[type[Checkpoints[T]], tuple[T]]:
        """Another process has the first one only: it finds others on its own way."""
        return type(self), (self._values[0],)

    def add(self, step: int, value: T) -> None:
        """Keep what is known before a step, unless it lies too close to others."""
        if step % self._interval:
            return
        self._values[step] = value
        if len(self._values) > MOST_CHECKPOINTS:
            self._interval *= 2
            kept = (each for each in self._values if each % self._interval == 0)
            self._values = {step: self._values[step] for step in kept}

    def last_before(self, step: int) -> T:
        """What was known at a step, or at the last one before it of which something is kept."""
        return self._values[max(each for each in self._values if each <= step)]
