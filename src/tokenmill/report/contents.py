"""What reports need of a dataset beside its arrays: its documents, its history."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenmill.store.canonical import read_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import RUN_NAME, Run


def iter_documents(dataset: Dataset) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield (source, position, ids) of every document, in order."""
    for shard in dataset.shards:
        table = shard.documents()
        sources = table.column("source").combine_chunks().dictionary_decode().to_pylist()
        positions = table.column("position").to_pylist()
        for index, (source, position) in enumerate(zip(sources, positions, strict=True)):
            yield source, position, shard.document(index)


def stored_run(dataset: Dataset) -> Run:
    """The circumstances in which a dataset was built."""
    return read_sealed(dataset.folder / RUN_NAME, Run)
