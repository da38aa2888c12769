"""A plain measure of how far something has come, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meter() -> Iterator[Callable[[str, int, int], None]]:
    """A callback for (stage, done, total) that draws one line, and removes it at the end."""
    shown, width = 0.0, 0

    def advance(stage: str, done: int, total: int) -> None:
        nonlocal shown, width
        if sys.stderr.isatty() and time.monotonic() - shown > 0.1:
            shown = time.monotonic()
            line = f"{stage} {done / max(total, 1):.0%}"
            width = max(width, len(line))
            print(f"\r{line:<{width}} ", end="", file=sys.stderr, flush=True)

    try:
        yield advance
    finally:
        if shown:
            print("\r" + " " * (width + 1) + "\r", end="", file=sys.stderr, flush=True)
