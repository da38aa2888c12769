"""Encodes by chunks of text: each is encoded once, and its ids are found again after that.

Real text repeats itself: after some megabytes most chunks are found, at the price of a lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.encode.engines.chunks.cuts import Cuts
from tokenmill.encode.engines.chunks.table import ChunkTable
from tokenmill.records import Int64Array, TokenBatch
from tokenmill.words.byte_strings import UInt8Array


class ChunkEncoder(Protocol):
    """Gives the ids of chunks that are not in the table."""

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        """The ids of every chunk: `data[start:stop]`, valid UTF-8, for each row of `places`."""


class ChunkEngine:
    """A table of chunks before an encoder of chunks; it is dropped when it has grown too large."""

    def __init__(
        self, name: str, version: str, cuts: Cuts, encoder: ChunkEncoder, cache_bytes: int
    ) -> None:
        self.name = name
        self.version = version
        self._encoder = encoder
        self._cache_bytes = cache_bytes
        self._table = ChunkTable(cuts)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text, in order."""
        if self._table.num_bytes > self._cache_bytes:
            self._table.forget()
        encoded = [text.encode() for text in texts]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        offsets = offsets_from_lengths([len(part) for part in encoded])
        try:
            found = self._table.find(data, offsets)
            self._table.learn(self._encoder.encode_chunks(data, found.new))
        except BaseException:
            self._table.forget()  # entries without ids must not be found again
            raise
        return self._table.gather(found, self._encoder.encode_chunks(data, found.long))
