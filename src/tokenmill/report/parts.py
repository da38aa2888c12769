"""The part of a dataset that one of several machines verifies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.run.agents.shard import Shard
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import FileEntry


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a dataset: some shards, other files, sources and plans."""

    dataset: Dataset
    shard: Shard

    @property
    def is_first(self) -> bool:
        """Whether this part checks what exists only once."""
        return self.shard.index == 0

    @property
    def shards(self) -> slice:
        """Consecutive shards of the dataset."""
        return share([entry.tokens for entry in self.dataset.manifest.shards], self.shard)

    @property
    def files(self) -> list[FileEntry]:
        """Files that belong to no shard. Every part checks the tokenizer's: it uses them."""
        manifest = self.dataset.manifest
        rejected = share([file.bytes for file in manifest.rejected], self.shard)
        return [*manifest.tokenizer.files, *manifest.rejected[rejected]]

    @property
    def documents(self) -> range:
        """The documents in the shards of this part."""
        counts = [entry.documents for entry in self.dataset.manifest.shards]
        start = sum(counts[: self.shards.start])
        return range(start, start + sum(counts[self.shards]))

    @property
    def sources(self) -> slice:
        """Consecutive sources of the dataset."""
        return share([source.bytes for source in self.dataset.manifest.sources], self.shard)

    @property
    def documents_of_sources(self) -> range:
        """The documents from the sources of this part, according to the manifest."""
        counts = [source.counts.documents for source in self.dataset.manifest.sources]
        start = sum(counts[: self.sources.start])
        return range(start, start + sum(counts[self.sources]))

    def plans(self, names: Sequence[str]) -> list[str]:
        """The plans that this part checks."""
        return list(names[self.shard.index :: self.shard.count])


def share(sizes: Sequence[int], shard: Shard) -> slice:
    """The consecutive items that belong to a part: those with their middle inside it.

    Every item is in the part of one shard, and the parts are about equally large.
    """
    ends = np.cumsum(sizes, dtype=np.float64)
    middles = ends - np.asarray(sizes, np.float64) / 2
    total = float(ends[-1]) if len(ends) else 0.0
    edges = [total * edge / shard.count for edge in (shard.index, shard.index + 1)]
    start, stop = np.searchsorted(middles, edges).tolist()
    return slice(start if shard.index else 0, stop if shard.index + 1 < shard.count else len(sizes))
