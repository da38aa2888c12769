"""Hashes that choose documents: by id for subsets, by position for audits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.core.records import DocumentBatch, UInt64Array

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def place_hashes(source_name: str, batch: DocumentBatch) -> UInt64Array:
    """Return a hash of each document's source and position, of shape (n,).

    The mixing function is splitmix64 (Steele, Lea and Flood, 2014).
    """
    key = np.uint64(xxhash.xxh3_64_intdigest(source_name.encode()))
    with np.errstate(over="ignore"):
        x = (batch.positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN + key
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: UInt64Array = x ^ (x >> np.uint64(31))
    return hashes


def document_hashes(source_name: str, batch: DocumentBatch) -> UInt64Array:
    """Return a hash of each document's id, else of its source and position, of shape (n,)."""
    hashes = place_hashes(source_name, batch)
    for index, name in enumerate(batch.ids or ()):
        if name is not None:
            hashes[index] = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"))
    return hashes


def chosen(hashes: UInt64Array, share: float) -> npt.NDArray[np.bool_]:
    """Choose about `share` of the documents, always the same ones. Returns shape (n,)."""
    return hashes < np.uint64(min(int(share * 2**64), 2**64 - 1))
