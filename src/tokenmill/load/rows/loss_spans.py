"""Ranges of tokens without loss, from the documents tables."""

from __future__ import annotations

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.store.dataset import Shard
from tokenmill.store.digests import require_digest
from tokenmill.store.documents_table import damaged_table

Spans = tuple[Int64Array, Int64Array, Int64Array]
"""Offsets of each document's ranges, shape (num_documents + 1,); starts and stops of ranges."""


def checked_spans(shard: Shard) -> Spans:
    """Return `read_spans`, after comparing the digest of the table.

    Raises:
        VerificationError: the table is damaged.
    """
    path = shard.path("parquet")
    known = next(file.xxh3_128 for file in shard.entry.files if file.name.endswith(".parquet"))
    require_digest(path, known)
    return read_spans(shard)


def read_spans(shard: Shard) -> Spans:
    """Return the ranges without loss of a shard's documents, from its documents table.

    Raises:
        VerificationError: the column is missing, or a range is not inside its document.
    """
    path = shard.path("parquet")
    table = shard.documents(["no_loss"])
    if "no_loss" not in table.column_names:
        raise damaged_table(path, "it has no column 'no_loss', which the manifest lists")
    column = table.column("no_loss").combine_chunks()
    counts = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    ranges = column.flatten()
    if ranges.null_count or any(ranges.field(name).null_count for name in ("start", "stop")):
        raise damaged_table(path, "a range without loss has no start or no stop")
    starts, stops = (ranges.field(name).to_numpy() for name in ("start", "stop"))
    of_each = np.repeat(shard.read_lengths(), counts)
    if ((starts < 0) | (starts >= stops) | (stops > of_each)).any():
        raise damaged_table(path, "a range without loss reaches outside its document")
    return offsets_from_lengths(counts), starts, stops
