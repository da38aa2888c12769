"""Token files as other tools write them, with ids that can be read: digit d has id d, EOS is 0."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tokenmill import Dataset

Documents = Sequence[Sequence[int]]
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def index_bytes(
    lengths: Sequence[int],
    places: Sequence[int],
    bounds: Sequence[int],
    code: int = 8,
    *,
    num_sequences: int | None = None,
    num_bounds: int | None = None,
) -> bytes:
    """The bytes of a `.idx`, right or wrong, written value by value."""
    count = len(lengths) if num_sequences is None else num_sequences
    indices = len(bounds) if num_bounds is None else num_bounds
    return b"".join(
        [
            b"MMIDIDX\x00\x00",
            struct.pack("<QBQQ", 1, code, count, indices),
            struct.pack(f"<{len(lengths)}i", *lengths),
            struct.pack(f"<{len(places)}q", *places),
            struct.pack(f"<{len(bounds)}q", *bounds),
        ]
    )


def write_pair(prefix: Path, documents: Documents, dtype: str = "uint16") -> Path:
    """A pair with one sequence for each document; returns the path of the `.bin`."""
    ids = [token for document in documents for token in document]
    path = prefix.with_suffix(".bin")
    np.array(ids, dtype).tofile(path)
    lengths = [len(document) for document in documents]
    places = [sum(lengths[:i]) * np.dtype(dtype).itemsize for i in range(len(lengths))]
    data = index_bytes(lengths, places, range(len(documents) + 1), CODES[dtype])
    prefix.with_suffix(".idx").write_bytes(data)
    return path


def documents_of(dataset: Dataset) -> list[list[int]]:
    return [
        shard.document(number).tolist()
        for shard in dataset.shards
        for number in range(shard.num_documents)
    ]


def places_of(dataset: Dataset) -> list[tuple[str, int]]:
    """The source and position of each document."""
    columns = [shard.documents(["source", "position"]).to_pydict() for shard in dataset.shards]
    return [pair for each in columns for pair in zip(*each.values(), strict=True)]


def is_shared(dataset: Dataset, file: Path, shard: int = 0) -> bool:
    """Whether a shard's ids are the same file on the disk."""
    return dataset.shards[shard].path("bin").samefile(file)
