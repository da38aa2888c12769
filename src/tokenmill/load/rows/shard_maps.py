"""Memory maps of the shards that rows are read from. They are checked before use.

Compiled code gets a table of addresses. An index is checked as a whole when its shard is first
mapped, and a block of tokens (64 KiB) when it is first used: its digest must match, and every id
must be in the vocabulary. The digest alone would not reveal a file that was written with wrong ids.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.rows.block_cache import BlockCache
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.digests import BLOCK_BYTES, num_blocks
from tokenmill.store.file_map import FileMap
from tokenmill.store.layout import HEADER, contradiction, index_bytes
from tokenmill.store.manifest import FileEntry

MOST_MAPPED = 1024
"""Limit on the shards that stay mapped between two batches."""
DOCUMENTS_AT_ONCE = 1 << 16
"""Documents of an index that are checked at once."""


class ShardMaps:
    """The mapped shards of a dataset, as addresses for compiled code."""

    def __init__(self, dataset: Dataset) -> None:
        self._shards = dataset.shards
        counts = [shard.entry.documents for shard in dataset.shards]
        self.first_documents = offsets_from_lengths(counts)
        """First document of each shard, shape (num_shards + 1,)."""
        self.table = np.zeros((len(self._shards), 4), np.int64)
        """Addresses of tokens and index, and numbers of tokens and documents, for each shard.

        Shape (num_shards, 4). Addresses are 0 if the shard is not mapped.
        """
        self._like: npt.NDArray[np.integer] = np.empty(0, dataset.token_dtype)
        self._largest_id = dataset.manifest.tokenizer.largest_id
        counts = [-(-self._num_blocks(shard) // 8) * 8 for shard in self._shards]
        self.first_blocks = offsets_from_lengths(counts)
        """First block of tokens of each shard, a multiple of 8, shape (num_shards + 1,)."""
        self.checked = np.zeros(self.first_blocks[-1] // 8, np.uint8)
        """One bit per block, set if the block has been checked, shape (num_blocks / 8,)."""
        # Separate maps, so that other readers cannot unmap what the table points to.
        self._maps: dict[int, tuple[FileMap, FileMap]] = {}
        self._seen: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self._last_use = np.zeros(len(self._shards), np.int64)
        self._clock = 0
        self._origin = dataset.origin
        self.cache = (
            None
            if self._origin is None
            else BlockCache(self._origin, self._shards, self.first_blocks, self.checked)
        )
        """The block cache, if the dataset is in a bucket."""

    def require(self, shards: Int64Array) -> None:
        """Map shards. If there are too many, unmap the least recently used ones.

        Raises:
            VerificationError: the size of a file differs from the manifest, or an index is damaged
                or contradicts itself.
        """
        missing = self._missing(shards)
        self._clock += 1
        self._last_use[shards] = self._clock
        if not len(missing):
            return
        if self._origin is not None:
            indexes = self._origin.index_requests(self._index_files(missing))
            self._origin.fetcher.obtain(indexes)
        mapped = np.flatnonzero(self.table[:, 0])
        too_many = len(mapped) + len(missing) - MOST_MAPPED
        if too_many > 0:
            idle = mapped[self._last_use[mapped] < self._clock]
            oldest = idle[np.argsort(self._last_use[idle], kind="stable")][:too_many]
            self._unmap(oldest)
        for number in missing.tolist():
            self._map(number)

    def announce(self, shards: Int64Array) -> None:
        """Start to fetch the indexes of shards, if the dataset is in a bucket."""
        if self._origin is not None:
            missing = self._index_files(self._missing(shards))
            self._origin.fetcher.announce(self._origin.index_requests(missing))

    def can_map(self, shards: Int64Array) -> bool:
        """Return whether the announced indexes of shards have arrived."""
        if self._origin is None:
            return True
        missing = self._index_files(self._missing(shards))
        return self._origin.fetcher.has(file.name for file in missing)

    def _missing(self, shards: Int64Array) -> Int64Array:
        """Return those of the shards that are not mapped in this process."""
        if self.cache is not None and self.cache.begin_in_this_process():
            self._unmap(np.flatnonzero(self.table[:, 0]))
        if self.table[shards, 0].all():
            return np.empty(0, np.int64)
        return np.unique(shards[self.table[shards, 0] == 0])

    def _index_files(self, shards: Int64Array) -> list[FileEntry]:
        """Return the token indexes and block digests of shards."""
        return [
            file for number in shards.tolist() for file in self._shards[number].entry.files[1:3]
        ]

    def _unmap(self, shards: Int64Array) -> None:
        for number in shards.tolist():
            self.table[number] = 0
            for file in self._maps.pop(number):
                file.close()
            self._shards[number].release()  # frees its digests

    def check(self, blocks: Int64Array, beside: Int64Array | None = None) -> None:
        """Check blocks of tokens before their first use. Blocks may be repeated.

        Blocks in `beside` are used, too, and must stay in the cache.

        Raises:
            VerificationError: a block is damaged, or contains an id that does not exist.
        """
        blocks = np.unique(blocks)
        if self.cache is not None:
            self.cache.require(blocks if beside is None else beside)
        shards = np.searchsorted(self.first_blocks, blocks, side="right") - 1
        numbers, firsts = np.unique(shards, return_index=True)
        for number, inside in zip(numbers.tolist(), np.split(blocks, firsts[1:]), strict=True):
            places = inside - self.first_blocks[number]
            with open(self._tokens_path(number), "rb", buffering=0) as file:
                for place in places.tolist():
                    data = os.pread(file.fileno(), BLOCK_BYTES, place * BLOCK_BYTES)
                    self._check_block(self._shards[number], place, data)
        self._set_checked(blocks)

    def read(self, number: int, first: int, stop: int) -> npt.NDArray[np.integer]:
        """Return tokens [first, stop) of a mapped shard, shape (stop - first,), after a check.

        For many tokens, this takes less time than `check` and a copy from the map.

        Raises:
            VerificationError: a block is damaged, or contains an id that does not exist.
        """
        shard, size = self._shards[number], self._like.itemsize
        places = range(first * size // BLOCK_BYTES, num_blocks(stop * size))
        blocks = self.first_blocks[number] + np.arange(places.start, places.stop)
        if self.cache is not None:
            self.cache.require(blocks)
        begin = places.start * BLOCK_BYTES
        data = np.empty(min(places.stop * BLOCK_BYTES, shard.entry.tokens * size) - begin, np.uint8)
        with open(self._tokens_path(number), "rb", buffering=0) as file:
            file.seek(begin)
            done = 0
            while part := file.readinto(data[done:].data):  # at most 2 GiB come at once
                done += part
        is_new = self.checked[blocks >> 3] >> (blocks & 7) & 1 == 0
        for place in np.flatnonzero(is_new).tolist():
            block = data[place * BLOCK_BYTES : (place + 1) * BLOCK_BYTES].data
            self._check_block(shard, places[place], block)
        self._set_checked(blocks)
        found: npt.NDArray[np.integer] = data.view(self._like.dtype)
        return found[first - begin // size : stop - begin // size]

    def _set_checked(self, blocks: Int64Array) -> None:
        np.bitwise_or.at(self.checked, blocks >> 3, (1 << (blocks & 7)).astype(np.uint8))

    def _check_block(self, shard: Shard, place: int, data: bytes | memoryview) -> None:
        _compare(shard, "bin", place, data)
        if not self._has_only_known_ids(data):
            why = f"the block at byte {place * BLOCK_BYTES} has ids above the largest id"
            raise _damaged(shard.path("bin"), f"{why}, {self._largest_id}")

    def forget(self) -> None:
        """Give the memory of what was read back to the system. Shards stay mapped."""
        for files in self._maps.values():
            for file in files:
                file.forget()

    def _tokens_path(self, number: int) -> Path:
        if self.cache is not None:
            return self.cache.tokens_path(number)
        return self._shards[number].path("bin")

    def _num_blocks(self, shard: Shard) -> int:
        return num_blocks(shard.entry.tokens * self._like.itemsize)

    def _has_only_known_ids(self, data: bytes | memoryview) -> bool:
        """Return whether every id of a block is in the vocabulary."""
        unsigned = np.dtype(f"<u{self._like.itemsize}")  # negative ids become large numbers
        return bool(np.frombuffer(data, unsigned).max(initial=0) <= self._largest_id)

    def _map(self, number: int) -> None:
        """Map a shard. If its files have changed, forget which of its blocks were checked."""
        shard = self._shards[number]
        shard.check_index_header()
        num_tokens, num_documents = shard.entry.tokens, shard.entry.documents
        ids = FileMap(self._tokens_path(number), num_tokens * self._like.itemsize)
        index = FileMap(shard.path("idx"), index_bytes(num_documents))
        found = ids.identity, index.identity
        if self.cache is not None:  # the file changes as blocks are fetched
            found = (ids.identity[0], 0), index.identity
        if self._seen.get(number) != found:
            self._check_index(number, index)
            self._seen[number] = found
            self.checked[self.first_blocks[number] // 8 : self.first_blocks[number + 1] // 8] = 0
        self._maps[number] = ids, index
        self.table[number] = ids.address, index.address + HEADER.size, num_tokens, num_documents

    def _check_index(self, number: int, index: FileMap) -> None:
        """Compare the digests of an index, and check its offsets against its lengths."""
        shard, data = self._shards[number], index.data
        for at in range(num_blocks(len(data))):
            block = data[at * BLOCK_BYTES : (at + 1) * BLOCK_BYTES]
            _compare(shard, "idx", at, block, self._num_blocks(shard))
        counts = shard.entry.documents, shard.entry.tokens
        if not index_is_sound(data[HEADER.size :], *counts, self._like.itemsize):
            raise contradiction(str(shard.path("idx")))


def index_is_sound(
    index: memoryview, num_documents: int, num_tokens: int, token_bytes: int
) -> bool:
    """Return whether an index, after its header, is consistent with its lengths.

    Each document must have a token, and all documents must have `num_tokens` of `token_bytes` each.
    The index is read in parts to save memory.
    """
    all_lengths = np.frombuffer(index, "<u4", num_documents)
    all_offsets = np.frombuffer(index, "<i8", num_documents, 4 * num_documents)
    all_numbers = np.frombuffer(index, "<i8", num_documents + 1, 12 * num_documents)
    total = 0
    for first in range(0, num_documents, DOCUMENTS_AT_ONCE):
        part = slice(first, first + DOCUMENTS_AT_ONCE)
        lengths, numbers = all_lengths[part], all_numbers[part]
        stops = total + np.cumsum(lengths, dtype=np.int64)
        if lengths.min() < 1 or stops[-1] > num_tokens:
            return False
        if not np.array_equal(all_offsets[part], (stops - lengths) * token_bytes):
            return False
        if not np.array_equal(numbers, np.arange(first, first + len(numbers))):
            return False
        total = int(stops[-1])
    return total == num_tokens and int(all_numbers[-1]) == num_documents


def _compare(shard: Shard, part: str, place: int, data: bytes | memoryview, first: int = 0) -> None:
    """Compare the digest of a block. `first` is the part's first digest in the shard's list."""
    known = shard.block_digests
    if xxhash.xxh3_64_intdigest(data) != int(known[first + place]):
        why = f"the digest of the block at byte {place * BLOCK_BYTES} differs"
        raise _damaged(shard.path(part), why)


def _damaged(path: Path, why: str) -> VerificationError:
    hint = "tokenmill verify lists what else is damaged; restore the file from a copy"
    return VerificationError(
        "a file of the dataset is damaged", where=str(path), why=why, hint=hint
    )
