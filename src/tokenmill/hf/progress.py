"""Progress of a run, in bytes of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tokenmill.hf.log import logger

LINE_SECONDS = 10.0


@contextmanager
def progress(total_bytes: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a callback for finished bytes: a bar on a terminal or in a notebook, lines in a log."""
    if not shown:
        yield lambda num_bytes: None
    elif sys.stderr.isatty() or "ipykernel" in sys.modules:
        from tqdm.auto import tqdm

        with tqdm(total=total_bytes, unit="B", unit_scale=True, desc="tokenizing") as bar:
            yield bar.update
            bar.total = bar.n  # the total was an estimate
    else:
        yield _Lines(total_bytes).advance


class _Lines:
    def __init__(self, total_bytes: int) -> None:
        self._total = max(total_bytes, 1)
        self._done = 0
        self._started = self._told = time.monotonic()

    def advance(self, num_bytes: int) -> None:
        self._done += num_bytes
        now = time.monotonic()
        if now - self._told >= LINE_SECONDS:
            self._told = now
            share = min(self._done / self._total, 1.0)
            speed = self._done / (now - self._started) / 1e6
            logger.info("tokenizing: %.0f%%, %.1f MB/s", 100 * share, speed)
