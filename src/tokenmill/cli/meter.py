"""Progress of a stage: one line redrawn on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokenmill.cli.quantities import duration_text

REDRAW_SECONDS = 0.1
PLAIN_SECONDS = 10.0
"""Time between two lines off a terminal. Shorter stages print nothing."""
COMPILING = "compiling the packing strategies for this machine; later runs will not have to"


@contextmanager
def meter() -> Iterator[Callable[[str, int, int], None]]:
    """A callback for (stage, done, total) that draws one line, and removes it at the end.

    Off a terminal, it prints a line every ten seconds.
    """
    drawn = Meter()
    try:
        yield drawn.advance
    finally:
        drawn.clear()


@contextmanager
def planning_meter() -> Iterator[Callable[[str, int, int], None]]:
    """Like `meter`, and print a line if anything must be compiled, which takes seconds."""
    from tokenmill.kernels.compiled import telling_of_compilation

    drawn = Meter()

    def tell() -> None:
        drawn.clear()
        print(COMPILING, file=sys.stderr, flush=True)

    try:
        with telling_of_compilation(tell):
            yield drawn.advance
    finally:
        drawn.clear()


class Meter:
    """The progress line. Call `clear` before printing anything else, and at the end."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._shown = 0.0 if self._on_terminal else time.monotonic()
        self._width = 0
        self._stage, self._begun = "", 0.0

    def advance(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage and the time left, unless the line is fresh enough."""
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._begun = stage, now
        if now - self._shown < (REDRAW_SECONDS if self._on_terminal else PLAIN_SECONDS):
            return
        self._shown = now
        share = done / max(total, 1)
        left = ""
        if 0 < share < 1 and now - self._begun > 1:
            left = f", {duration_text((now - self._begun) * (1 - share) / share)} left"
        line = f"{stage} {share:.0%}{left}"
        if not self._on_terminal:
            print(line, file=sys.stderr, flush=True)
            return
        self._width = max(self._width, len(line))
        print(f"\r{line:<{self._width}} ", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._width:
            print("\r" + " " * (self._width + 1) + "\r", end="", file=sys.stderr, flush=True)
            self._width, self._shown = 0, 0.0
