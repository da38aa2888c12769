"""The documents of a dataset and its run record, for reports."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from tokenmill.store.canonical import read_sealed, unseal
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.manifest import RUN_NAME, Run
from tokenmill.store.temporary import whole_shard


def iter_documents(dataset: Dataset, numbers: range) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield (source, position, ids) of consecutive documents."""
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
    """The run record of a local dataset: how it was built."""
    return read_sealed(dataset.folder / RUN_NAME, Run)


def run_if_kept(dataset: Dataset) -> Run | None:
    """The run record of a local or remote dataset; None if it is missing."""
    if dataset.origin is None:
        return stored_run(dataset) if (dataset.folder / RUN_NAME).is_file() else None
    location = dataset.origin.location
    from tokenmill.store.cloud.client import open_client  # imports HTTP clients

    data = open_client(location).get(RUN_NAME)
    return None if data is None else unseal(data, Run, f"{location}/{RUN_NAME}")


class SubsetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The documents and tokens of one subset."""

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
    """Which documents are in the validation subset, shape (num_documents,)."""
    import pyarrow.compute as pc

    subsets = shard.documents(["subset"]).column("subset")
    return pc.equal(subsets, "validation").to_numpy().astype(np.bool_)  # type: ignore[no-any-return]
