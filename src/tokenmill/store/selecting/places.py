"""The shards of several datasets, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import BoolArray
from tokenmill.store.dataset import Dataset, Shard


@dataclass(frozen=True, slots=True)
class Place:
    """A shard of one of several datasets."""

    dataset: Dataset
    dataset_number: int
    """Number of the dataset among those given."""
    shard: Shard
    first_document: int
    """Number of the shard's first document in its dataset."""
    documents: slice
    """The shard's documents among those of all datasets."""
    first_source: int
    """Number of the dataset's first source among those of all datasets."""

    @property
    def selected(self) -> BoolArray:
        """The documents that the dataset has, shape (num_documents,): a view may lack some."""
        if self.shard.selected is not None:
            return self.shard.selected
        return np.ones(self.shard.entry.documents, np.bool_)


def places_of(datasets: Sequence[Dataset]) -> Iterator[Place]:
    """Yield the shards of datasets, one dataset after the other."""
    before = sources = 0
    for number, dataset in enumerate(datasets):
        start = before
        for shard in dataset.shards:
            documents = slice(before, before + shard.entry.documents)
            yield Place(dataset, number, shard, documents.start - start, documents, sources)
            before = documents.stop
        sources += len(dataset.manifest.sources)
