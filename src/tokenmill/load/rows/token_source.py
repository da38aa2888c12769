"""The tokens of documents of a dataset by their numbers, in any order."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array
from tokenmill.kernels.interpreted import for_steps
from tokenmill.kernels.rows import join, locate
from tokenmill.load.rows.shard_maps import ShardMaps
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.layout import contradiction

TOKENS_AT_ONCE = 1 << 21
NEIGHBOURS = 64
"""Mean number of neighbours from which their tokens are read at once, not one by one."""
MAPPED_BYTES = 32 << 20
"""The memory of tokens is given back to the system when as many bytes were read."""


@dataclass(frozen=True, slots=True)
class Located:
    """Where documents are, arrays of shape (n,)."""

    documents: Int64Array
    shards: Int64Array
    found: Int64Array
    """Shape (2, n): see `locate`."""

    @property
    def lengths(self) -> Int64Array:
        """Tokens of each document."""
        lengths: Int64Array = self.found[0]
        return lengths

    @property
    def starts(self) -> Int64Array:
        """First token of each document in its shard."""
        starts: Int64Array = self.found[1]
        return starts

    def batches(self) -> Iterator[Located]:
        """Yield consecutive documents with up to `TOKENS_AT_ONCE` tokens, or a single one."""
        stops, first = np.cumsum(self.lengths), 0
        while first < len(stops):
            most = TOKENS_AT_ONCE + (stops[first - 1] if first else 0)
            stop = max(int(np.searchsorted(stops, most, side="right")), first + 1)
            chosen = slice(first, stop)
            yield Located(self.documents[chosen], self.shards[chosen], self.found[:, chosen])
            first = stop


class TokenSource:
    """Reads documents through memory maps. Their index and their tokens are checked at first use.

    Only one thread may use it at a time.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset, self._maps = dataset, ShardMaps(dataset)
        self._like: npt.NDArray[np.integer] = np.empty(0, dataset.token_dtype)
        self.first_documents = self._maps.first_documents
        """First document of each shard, shape (num_shards + 1,)."""
        self._bytes = 0
        """Bytes of tokens read since their memory was given back."""

    def shards_of(self, documents: Int64Array) -> Int64Array:
        """Return the shard of each document, shape (n,)."""
        return np.searchsorted(self.first_documents, documents, side="right") - 1

    def locate(self, documents: Int64Array) -> Located:
        """Return where documents are, which must exist.

        Raises:
            VerificationError: an index is damaged.
        """
        shards = self.shards_of(documents)
        self._maps.forget()
        self._maps.require(shards)
        located = Located(documents, shards, np.ones((2, len(documents)), np.int64))
        return Located(documents, shards, self._found(located, self._maps.checked)[0])

    def document(self, number: int) -> Int64Array:
        """Return the tokens of one document, shape (num_tokens,), in microseconds.

        Raises:
            VerificationError: an index or a block of tokens is damaged.
        """
        maps, size = self._maps, self._like.itemsize
        shard = int(np.searchsorted(self.first_documents, number, side="right")) - 1
        maps.require(np.array([shard]))
        tokens, index, _, num_documents = maps.table[shard].tolist()
        local = number - int(self.first_documents[shard])
        length = ctypes.c_int32.from_address(index + 4 * local).value
        first = ctypes.c_int64.from_address(index + 4 * num_documents + 8 * local).value
        edges = first // BLOCK_BYTES, (first + length * size - 1) // BLOCK_BYTES + 1
        blocks = maps.first_blocks[shard] + np.arange(*edges)
        new = blocks[maps.checked[blocks >> 3] >> (blocks & 7) & 1 == 0]
        if len(new):
            maps.check(new, blocks)
        data = ctypes.string_at(tokens + first, length * size)
        return np.frombuffer(data, self._like.dtype).astype(np.int64)

    def read(self, located: Located) -> npt.NDArray[np.integer]:
        """Return the tokens of documents, one document after another, shape (num_tokens,).

        Raises:
            VerificationError: a block of tokens is damaged.
        """
        maps, lengths = self._maps, located.lengths
        maps.require(located.shards)
        edges = _edges(located)
        if len(edges) <= len(lengths) // NEIGHBOURS + 2:  # few runs of neighbours
            parts = [self._run(located, *edge) for edge in itertools.pairwise(edges)]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        blocks = self._found(located, maps.checked)[1]
        if len(blocks):
            is_limited = maps.cache is not None and maps.cache.is_limited
            every = self._found(located, np.zeros_like(maps.checked))[1] if is_limited else None
            maps.check(blocks, every)
        ids: npt.NDArray[Any] = np.empty((1, int(lengths.sum())), self._dataset.token_dtype)
        write = for_steps(join, ids.size)
        write(ids, located.shards, located.found, maps.table, self._like)
        self._bytes += ids.nbytes
        if self._bytes > MAPPED_BYTES:
            self._maps.forget()
            self._bytes = 0
        return ids.reshape(-1)

    def _run(self, located: Located, first: int, stop: int) -> npt.NDArray[np.integer]:
        """Return the tokens of neighbours."""
        start, last = int(located.starts[first]), stop - 1
        end = int(located.starts[last] + located.lengths[last])
        return self._maps.read(int(located.shards[first]), start, end)

    def _found(
        self, located: Located, checked: npt.NDArray[np.uint8]
    ) -> tuple[Int64Array, Int64Array]:
        """Return the location of documents, and the blocks of their tokens that are not checked."""
        maps, nothing = self._maps, np.zeros_like(located.documents)
        segments = np.stack([nothing, located.shards, located.documents, nothing, located.lengths])
        blocks = (maps.first_blocks, checked, BLOCK_BYTES)
        find = for_steps(locate, 4 * len(nothing))
        problem, found, new = find(segments, maps.first_documents, maps.table, self._like, blocks)
        if problem:  # a file was changed after its index was checked
            raise contradiction(self._dataset.location)
        return found, new


def _edges(located: Located) -> list[int]:
    """Where runs of documents begin that are neighbours in a shard, and where the last one ends."""
    shards, starts = located.shards, located.starts
    stops = starts + located.lengths
    is_edge = (shards[1:] != shards[:-1]) | (starts[1:] != stops[:-1])
    return [0, *(np.flatnonzero(is_edge) + 1).tolist(), len(shards)]
