"""The token ids of single documents, from mapped shards that are checked before use."""

from __future__ import annotations

import ctypes

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.load.rows.shard_maps import ShardMaps
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import BLOCK_BYTES


class DocumentReader:
    """Reads documents by their numbers in the dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dtype = dataset.token_dtype
        self._maps = ShardMaps(dataset)

    def read(self, document: int) -> Int64Array:
        """Return the ids of a document, including boundary tokens, shape (num_tokens,).

        Raises:
            VerificationError: an index or a block of tokens is damaged.
        """
        maps, size = self._maps, self._dtype.itemsize
        shard = int(np.searchsorted(maps.first_documents, document, side="right")) - 1
        maps.require(np.array([shard]))
        _, index, _, num_documents = maps.table[shard].tolist()
        local = document - int(maps.first_documents[shard])
        length = ctypes.c_int32.from_address(index + 4 * local).value
        first = ctypes.c_int64.from_address(index + 4 * num_documents + 8 * local).value
        edges = first // BLOCK_BYTES, (first + length * size - 1) // BLOCK_BYTES + 1
        blocks = maps.first_blocks[shard] + np.arange(*edges)
        new = blocks[maps.checked[blocks >> 3] >> (blocks & 7) & 1 == 0]
        if len(new):
            maps.check(new, blocks)
        data = ctypes.string_at(int(maps.table[shard, 0]) + first, length * size)
        return np.frombuffer(data, self._dtype).astype(np.int64)
