"""What a loader has handed out since it was opened, and how long the trainer waited for it.

The wait for a batch is the time from asking for it until it is handed out. The time from then until
the trainer asks again is the trainer's step:

    asked -- wait --> handed out -- step --> asked -- wait --> handed out -- step --> ...
"""

from __future__ import annotations

import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.load.columns import Batch
from tokenmill.load.rows.segmentation import Segmentation

RECENT_STEPS = 100
"""Number of steps that `wait_share` covers."""
clock = time.perf_counter
"""Returns the time in seconds."""


class CountedBatch(dict[str, Any]):
    """A batch from a worker of a DataLoader, with what the worker counted.

    PyTorch keeps the attributes of a mapping when it converts it or pins its tensors.
    """

    def __init__(self, batch: Batch, counts: Counter[str], place: Any = None) -> None:
        super().__init__(batch)
        self.counts, self.place = counts, place


class Meter:
    """Counts the batches of a loader and measures the wait for them. A pickled one starts anew."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.place: tuple[int, object] | None = None
        """The step and standing of a DataLoader's workers, if they make the batches."""
        self._steps, self._wait_seconds = 0, 0.0
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_STEPS + 1)
        """When each of the last batches was asked for, and when it was handed out."""
        self.on_batch: Callable[[], None] | None = None
        """Called after each batch."""
        self.on_end: Callable[[], None] | None = None
        """Called when no more batches will be taken from an iterator, and when Python ends."""

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return type(self), ()

    def add_rows(
        self, rows: Segmentation, sources: Int64Array | None = None, names: Sequence[str] = ()
    ) -> None:
        """Count the tokens of rows, in total and by source if sources have `names`."""
        lengths = rows.lengths
        lengths[rows.is_padding] = 0
        tokens = int(lengths.sum())
        self.counts["samples"] += rows.num_rows
        self.counts["tokens"] += tokens
        self.counts["padding"] += rows.num_rows * rows.row_length - tokens
        if names and sources is not None:
            of_sources = np.bincount(sources[rows.rows], lengths, len(names))
            for name, count in zip(names, of_sources.tolist(), strict=True):
                self.counts[f"tokens/{name}"] += int(count)

    def add_counts(self, counts: Counter[str]) -> None:
        """Add what another thread or process counted."""
        for name, count in counts.items():  # faster than Counter.update
            self.counts[name] += count

    def take_counts(self) -> Counter[str]:
        """Return the counts and set them to zero."""
        counts, self.counts = self.counts, Counter()
        return counts

    def hand_out(self, batch: Batch, asked: float, given: float) -> Batch:
        """Count a batch that was asked for and handed out at these times, and return it."""
        self._steps += 1
        self._wait_seconds += given - asked
        self._recent.append((asked, given))
        if isinstance(batch, CountedBatch):
            self.add_counts(batch.counts)
            self.place = batch.place
            batch = dict(batch)
        if self.on_batch is not None:
            self.on_batch()
        return batch

    def figures(self, sources: Sequence[str] = ()) -> dict[str, float]:
        """Return the figures since the loader was opened, by their keys in `stats`."""
        counted = ("samples", "tokens", "padding", *(f"tokens/{name}" for name in sources))
        positions = max(self.counts["tokens"] + self.counts["padding"], 1)
        recent = list(self._recent)  # at once, because another thread may be training
        waits = [given - asked for asked, given in recent[1:]]
        seconds = recent[-1][1] - recent[0][1] if waits else 0.0
        return {
            "steps": self._steps,
            **{name: self.counts[name] for name in counted},
            "padding_share": self.counts["padding"] / positions,
            "wait_seconds": self._wait_seconds,
            "wait_share": sum(waits) / seconds if seconds else 0.0,
        }


class Timed(Iterator[Batch]):
    """The same batches, with the wait for each measured. It keeps no batch in memory."""

    def __init__(self, batches: Iterator[Batch], meter: Meter) -> None:
        self._batches, self._meter = batches, meter
        if meter.on_end is not None:
            weakref.finalize(self, meter.on_end)

    def __next__(self) -> Batch:
        asked = clock()
        batch = next(self._batches)
        return self._meter.hand_out(batch, asked, clock())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)
