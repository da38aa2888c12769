"""Ranges of tokens without loss, as the documents tables hold them: some shards in memory."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tokenmill.errors import VerificationError
from tokenmill.records import Int64Array
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.digests import file_digest

SHARDS_KEPT = 64

Spans = tuple[Int64Array, Int64Array, Int64Array]
"""Offsets of each document's ranges, shape (num_documents + 1,); starts and stops of ranges."""


class LossSpans:
    """The ranges without loss of a dataset's documents."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._of_shard = lru_cache(SHARDS_KEPT)(self._read)

    def of(self, shard: int, document: int) -> list[tuple[int, int]]:
        """Ranges [start, stop) of a document of a shard, counted from its first token."""
        offsets, starts, stops = self._of_shard(shard)
        part = slice(int(offsets[document]), int(offsets[document + 1]))
        return list(zip(starts[part].tolist(), stops[part].tolist(), strict=True))

    def _read(self, number: int) -> Spans:
        shard = self._dataset.shards[number]
        path = shard.path("parquet")
        if file_digest(path) != _digest(shard):
            raise VerificationError(
                "a file of the dataset is damaged",
                where=str(path),
                why="its digest differs from that of the manifest",
                hint="tokenmill verify lists what else is damaged",
            )
        column = shard.documents(["no_loss"]).column("no_loss").combine_chunks()
        counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        ranges = column.flatten()
        starts, stops = (ranges.field(name).to_numpy() for name in ("start", "stop"))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), starts, stops


def _digest(shard: Shard) -> str:
    return next(file.xxh3_128 for file in shard.entry.files if file.name.endswith(".parquet"))
