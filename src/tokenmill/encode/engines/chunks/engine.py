"""An engine that caches the ids of chunks of text.

Real text repeats itself: after some megabytes, most chunks cost only a lookup.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.engines.chunks.cuts import Cuts
from tokenmill.encode.engines.chunks.slots import DOCUMENT, PADDING
from tokenmill.encode.engines.chunks.table import ChunkTable
from tokenmill.encode.words.byte_strings import UInt8Array

_NOTHING = TokenBatch(np.empty(0, np.uint32), np.zeros(1, np.int64))


class ChunkEncoder(Protocol):
    """Encodes chunks that are not in the table."""

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        """Return the ids of every chunk: `data[start:stop]`, valid UTF-8, for each row of `places`.

        There is at least one chunk, and `data` has `slots.PADDING` bytes after the last one.
        """


class ChunkEngine:
    """A chunk table in front of a chunk encoder; the table is dropped when it grows too large."""

    def __init__(
        self, name: str, version: str, cuts: Cuts, encoder: ChunkEncoder, cache_bytes: int
    ) -> None:
        self.name = name
        self.version = version
        self._encoder = encoder
        self._table = ChunkTable(cuts, cache_bytes)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text, in order."""
        encoded = [text.encode() for text in texts]
        data = np.frombuffer(b"".join([*encoded, bytes(PADDING)]), np.uint8)
        offsets = offsets_from_lengths([len(part) for part in encoded])
        try:
            return self._encode(data, offsets)
        except BaseException:
            self._table.forget()  # it may contain entries without ids
            raise

    def _encode(self, data: UInt8Array, offsets: Int64Array) -> TokenBatch:
        found = None
        parts, ends = [np.empty(0, np.uint32)], [np.zeros(1, np.int64)]
        num_ids = 0
        while found is None or found.state[DOCUMENT] < len(offsets) - 1:
            found = self._table.find(data, offsets, found)
            # A slice of one row is contiguous, others are not: kernels would compile for both.
            places = np.ascontiguousarray(found.asked[:, :2])
            asked = self._encoder.encode_chunks(data, places) if len(places) else _NOTHING
            ids, stops = self._table.finish(data, found, asked)
            parts.append(ids)
            ends.append(stops + num_ids)
            num_ids += len(ids)
        ids = parts[1] if len(parts) == 2 else np.concatenate(parts)
        return TokenBatch(ids, np.concatenate(ends))
