"""What reports need of a dataset beside its arrays: its documents, its history."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from tokenmill.store.canonical import read_sealed, unseal
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.manifest import RUN_NAME, Run
from tokenmill.store.temporary import whole_shard


def iter_documents(dataset: Dataset, numbers: range) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield (source, position, ids) of the documents of consecutive numbers."""
    first = 0
    for shard in dataset.shards:
        count = shard.entry.documents
        start, stop = max(numbers.start - first, 0), min(numbers.stop - first, count)
        first += count
        if start >= stop:
            continue
        with whole_shard(dataset, shard):
            table = shard.documents(["source", "position"]).slice(start, stop - start)
            sources = table.column("source").combine_chunks().dictionary_decode().to_pylist()
            positions = table.column("position").to_pylist()
            for index, (source, position) in enumerate(zip(sources, positions, strict=True), start):
                yield source, position, shard.document(index)


def stored_run(dataset: Dataset) -> Run:
    """The circumstances in which a dataset was built."""
    return read_sealed(dataset.folder / RUN_NAME, Run)


def run_if_kept(dataset: Dataset) -> Run | None:
    """The same of a dataset anywhere; None if it was not kept beside the dataset."""
    if dataset.origin is None:
        return stored_run(dataset) if (dataset.folder / RUN_NAME).is_file() else None
    location = dataset.origin.location
    from tokenmill.cloud.client import open_client  # imports what talks to servers

    data = open_client(location).get(RUN_NAME)
    return None if data is None else unseal(data, Run, f"{location}/{RUN_NAME}")


class SubsetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one subset of a dataset holds."""

    documents: int
    tokens: int


def count_subsets(dataset: Dataset) -> dict[str, SubsetCounts]:
    """Documents and tokens of `train` and `validation`; empty without a validation subset.

    The manifest has no such counts: they come from the documents tables and the token indexes.

    Raises:
        VerificationError: a documents table or a token index is damaged.
    """
    if not dataset.policies.read.validation:
        return {}
    documents = tokens = 0
    dataset.announce_pass()
    for shard in dataset.shards:
        held_out = _in_validation(shard)
        documents += int(held_out.sum())
        tokens += int(shard.read_lengths()[held_out].sum())
    rest = SubsetCounts(
        documents=dataset.num_documents - documents, tokens=dataset.num_tokens - tokens
    )
    return {"train": rest, "validation": SubsetCounts(documents=documents, tokens=tokens)}


def _in_validation(shard: Shard) -> np.ndarray:
    """Shape (num_documents,), bool."""
    import pyarrow.compute as pc

    subsets = shard.documents(["subset"]).column("subset")
    return pc.equal(subsets, "validation").to_numpy().astype(np.bool_)  # type: ignore[no-any-return]
