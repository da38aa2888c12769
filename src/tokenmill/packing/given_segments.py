"""The segments of the sequences that a run has given, shard by shard.

One window of a plan is read at a time, which takes about 50 bytes of memory for each given segment
in the window.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import MADV_DONTNEED, mmap
from typing import NamedTuple, cast

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan


class ShardSegments(NamedTuple):
    """Segments, sorted by document. All arrays have shape (n,)."""

    documents: Int64Array
    starts: Int64Array
    lengths: Int64Array
    times: Int64Array
    """How often each was given, at least once."""


class GivenSegments:
    """Reads the given segments of a plan, best in the order of its shards.

    Args:
        dataset: the dataset or view that the plan belongs to.
        plan: the plan.
        times: returns how often sequences were given, shape (n,), from their numbers.
    """

    def __init__(
        self, dataset: Dataset, plan: Plan, times: Callable[[Int64Array], Int64Array]
    ) -> None:
        self.dataset, self.plan, self._times = dataset, plan, times
        self._first_shards = offsets_from_lengths([each.shards for each in plan.manifest.windows])
        self._window = -1
        self._segments = ShardSegments(*np.zeros((4, 0), np.int64))

    def of_shard(self, number: int, lengths: Int64Array) -> ShardSegments:
        """Return the given segments of a shard; documents are numbered in the shard.

        `lengths`, shape (num_documents,), are those of its documents.

        Raises:
            VerificationError: the plan is damaged: a segment is not inside its document.
        """
        window = int(np.searchsorted(self._first_shards, number, side="right")) - 1
        if window != self._window:
            self._window, self._segments = window, self._read(window)
        first = self.dataset.first_document(number)
        edges = np.searchsorted(self._segments.documents, [first, first + len(lengths)])
        part = slice(*edges.tolist())
        found = ShardSegments(*(each[part] for each in self._segments))
        found = found._replace(documents=found.documents - first)
        if (found.starts + found.lengths > lengths[found.documents]).any():
            raise self.plan.damaged("a segment reaches outside its document")
        return found

    def _read(self, window: int) -> ShardSegments:
        """Return the given segments of a window of the plan, with their documents' own numbers."""
        plan = self.plan
        first, last = plan.window_starts[window : window + 2].tolist()
        offsets = plan.offsets[first : last + 1]
        if (offsets[1:] < offsets[:-1]).any():
            raise plan.damaged("its offsets are out of order")
        part = slice(int(offsets[0]), int(offsets[-1]))
        times = np.repeat(self._times(np.arange(first, last)), np.diff(offsets))
        given = np.flatnonzero(times)
        given = given[np.argsort(plan.documents[part][given], kind="stable")]
        arrays = (plan.documents, plan.starts, plan.lengths)
        documents, starts, lengths = (each[part][given].astype(np.int64) for each in arrays)
        for array in (plan.offsets, *arrays):
            if len(array):  # an empty one is not mapped
                cast("mmap", array.base).madvise(MADV_DONTNEED)
        return ShardSegments(documents, starts, lengths, times[given])
