"""The shards that rows are read from: mapped when needed, a bounded number at once, checked.

Compiled code takes them as a table of addresses. The first time that a 64 KiB block of tokens or
of an index is touched, its digest is compared with the one that was written with it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xxhash

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.errors import VerificationError
from tokenmill.records import Int64Array
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.file_map import FileMap
from tokenmill.store.layout import HEADER, index_bytes

MOST_MAPPED = 1024
"""Shards that stay mapped between two batches."""


class ShardMaps:
    """Shards of a dataset, as addresses for compiled code."""

    def __init__(self, dataset: Dataset) -> None:
        self._shards = dataset.shards
        counts = [shard.entry.documents for shard in dataset.shards]
        self.first_documents = offsets_from_lengths(counts)
        """Shape (num_shards + 1,): the first document of each shard."""
        self.table = np.zeros((len(self._shards), 4), np.int64)
        """Shape (num_shards, 4): addresses of tokens and index, numbers of tokens and documents.

        Addresses are 0 where the shard is not mapped.
        """
        self._token_bytes = np.dtype(dataset.manifest.token_dtype).itemsize
        blocks = [self._num_blocks(shard) for shard in self._shards]
        self.first_blocks = offsets_from_lengths([sum(counts) for counts in blocks])
        """Shape (num_shards + 1,): blocks of all shards, those of tokens before those of index."""
        tokens = np.array([count for count, _ in blocks], np.int64)
        self.first_index_blocks = self.first_blocks[:-1] + tokens
        self.checked = np.zeros(self.first_blocks[-1], np.uint8)
        """Shape (num_blocks,): whether a block has been checked; one byte for each 64 KiB."""
        # Maps of its own: other readers of the dataset may not unmap what the table points to.
        self._maps: dict[int, tuple[FileMap, FileMap]] = {}
        self._seen: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self._last_use = np.zeros(len(self._shards), np.int64)
        self._clock = 0

    def require(self, shards: Int64Array) -> None:
        """Map shards, and unmap those unused for longest where there are too many.

        Raises:
            VerificationError: a file has another size than the manifest says.
        """
        self._clock += 1
        self._last_use[shards] = self._clock
        if self.table[shards, 0].all():
            return
        missing = np.unique(shards[self.table[shards, 0] == 0])
        mapped = np.flatnonzero(self.table[:, 0])
        too_many = len(mapped) + len(missing) - MOST_MAPPED
        if too_many > 0:
            idle = mapped[self._last_use[mapped] < self._clock]
            oldest = idle[np.argsort(self._last_use[idle], kind="stable")][:too_many]
            for number in oldest.tolist():
                self.table[number] = 0
                for file in self._maps.pop(number):
                    file.close()
                self._shards[number].release()  # its digests
        for number in missing.tolist():
            self._map(number)

    def check(self, blocks: Int64Array) -> None:
        """Compare the digests of blocks (any number of times each) that are used the first time.

        Raises:
            VerificationError: one is not what was written.
        """
        blocks = np.unique(blocks)
        shards = np.searchsorted(self.first_blocks, blocks, side="right") - 1
        for number, block in zip(shards.tolist(), blocks.tolist(), strict=True):
            shard = self._shards[number]
            place = block - int(self.first_blocks[number])
            index_place = block - int(self.first_index_blocks[number])
            part, at = ("bin", place) if index_place < 0 else ("idx", index_place)
            with open(shard.path(part), "rb") as file:
                file.seek(at * BLOCK_BYTES)
                digest = xxhash.xxh3_64_intdigest(file.read(BLOCK_BYTES))
            known = shard.block_digests
            if len(known) != self.first_blocks[number + 1] - self.first_blocks[number]:
                raise _damaged(shard.path("xxh3"), "it has another number of digests")
            if digest != int(known[place]):
                raise _damaged(
                    shard.path(part),
                    f"from byte {at * BLOCK_BYTES} on, the digest of a block differs",
                )
        self.checked[blocks] = 1

    def _map(self, number: int) -> None:
        """Map a shard; what was checked of it holds only for the same files."""
        shard = self._shards[number]
        shard.check_index_header()
        num_tokens, num_documents = shard.entry.tokens, shard.entry.documents
        ids = FileMap(shard.path("bin"), num_tokens * self._token_bytes)
        index = FileMap(shard.path("idx"), index_bytes(num_documents))
        found = ids.identity, index.identity
        if self._seen.setdefault(number, found) != found:
            self._seen[number] = found
            self.checked[self.first_blocks[number] : self.first_blocks[number + 1]] = 0
        self._maps[number] = ids, index
        self.table[number] = ids.address, index.address + HEADER.size, num_tokens, num_documents

    def _num_blocks(self, shard: Shard) -> tuple[int, int]:
        """Blocks of the tokens and of the index of a shard."""
        sizes = shard.entry.tokens * self._token_bytes, index_bytes(shard.entry.documents)
        tokens, index = (-(-size // BLOCK_BYTES) for size in sizes)
        return tokens, index


def _damaged(path: Path, why: str) -> VerificationError:
    hint = "tokenmill verify lists what else is damaged; restore the file from a copy"
    return VerificationError(
        "a file of the dataset is damaged", where=str(path), why=why, hint=hint
    )
