"""How far something is: one line redrawn on a terminal, a line every ten seconds elsewhere."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokenmill.cli.tables import bar
from tokenmill.cli.terminal import columns_of, fitted
from tokenmill.core.values import duration_text, shortened

REDRAW_SECONDS = 0.1
KNOWN_SHARE = 0.05
"""The time left is shown from here on: the first merges of a vocabulary are the slowest by far."""
MARK_SECONDS = 0.5
"""Time between two marks of how far a stage is."""
PLAIN_SECONDS = 10.0
"""Time between two lines off a terminal. Shorter stages print nothing."""
WIDE = 100
"""The longer bar is drawn from this terminal width on."""
ERASE = "\r\x1b[K"


class Meter:
    """The line on standard error. Call `clear` before printing anything else, and at the end."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn_at = 0.0 if self._on_terminal else time.monotonic()
        self._is_drawn = False
        self._stage, self._last_line = "", ""
        self._begun = 0.0
        self._marks: list[tuple[float, float]] = []
        """Times and shares in the last half of the stage, and once before."""

    def advance(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage, and the time left if that can be known."""
        now, share = time.monotonic(), done / max(total, 1)
        if stage != self._stage:
            self._stage, self._begun, self._marks = stage, now, [(now, share)]
        left = self._seconds_left(now, share)
        self.draw(share, stage if left is None else f"{stage}, {duration_text(left)} left")

    def _seconds_left(self, now: float, share: float) -> float | None:
        """The time left at the rate of the last half of the stage's time, if there is one."""
        marks = self._marks
        if now - marks[-1][0] >= MARK_SECONDS:
            marks.append((now, share))
        while len(marks) > 1 and marks[1][0] <= (self._begun + now) / 2:
            marks.pop(0)
        since, before = marks[0]
        if now - self._begun <= 1 or share < KNOWN_SHARE or not before < share < 1:
            return None
        return (now - since) * (1 - share) / (share - before)

    def draw(self, share: float, text: str) -> None:
        """Show a share and a text, unless the line is fresh enough.

        On a terminal, a full bar is always shown, and parts of the text that do not fit are left
        out.
        """
        now = time.monotonic()
        seconds = PLAIN_SECONDS if not self._on_terminal else REDRAW_SECONDS if share < 1 else 0
        if now - self._drawn_at < seconds:
            return
        self._drawn_at = now
        if not self._on_terminal:
            line = f"{share:>11.1%}  {text}"
            if line != self._last_line:
                print(line, file=sys.stderr, flush=True)
            self._last_line = line
            return
        columns = columns_of(sys.stderr) or 80
        head = f"{bar(share, '·', 24 if columns >= WIDE else 10)} {share:4.0%} "
        room = max(columns - len(head) - 1, 1)
        line = f"{head}{shortened(_fitted(text, room), room)}"
        print(f"{ERASE}{line}", end="", file=sys.stderr, flush=True)
        self._is_drawn = True

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._is_drawn:
            print(ERASE, end="", file=sys.stderr, flush=True)
            self._is_drawn, self._drawn_at = False, 0.0


@contextmanager
def meter() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback for (stage, done, total) that draws the line, and remove it at the end."""
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
        what = "compiling the packing strategies for this machine; later runs will not have to"
        print(fitted(what, sys.stderr), file=sys.stderr, flush=True)

    try:
        with telling_of_compilation(tell):
            yield drawn.advance
    finally:
        drawn.clear()


def _fitted(line: str, room: int) -> str:
    """The first parts of a line that fit into `room` characters, at least one; none is cut."""
    fitted = ""
    for part in re.split(r"(?<=[,;]) ", line):
        longer = f"{fitted} {part}".lstrip()
        if fitted and len(longer.rstrip(",;")) > room:
            break
        fitted = longer
    return fitted.rstrip(",;")
