"""memo: the reference's own answers, given again.

Texts are cut where that changes no id, and what the reference said of a chunk is remembered. Real
text repeats itself: after some megabytes, most chunks are found, at the price of a lookup.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.memo.chunk_table import ChunkTable
from tokenmill.encode.engines.memo.cuts import make_cuts
from tokenmill.records import Int64Array, TokenBatch


class MemoEngine:
    """A reference with a table of chunks, which is dropped when it has grown too large."""

    name = "memo"

    def __init__(
        self, reference: Engine, tokenizer_json: bytes, control_tokens: bool, cache_bytes: int
    ) -> None:
        self.version = reference.version
        self._reference = reference
        self._cache_bytes = cache_bytes
        self._table = ChunkTable(make_cuts(msgspec.json.decode(tokenizer_json), control_tokens))

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if self._table.num_bytes > self._cache_bytes:
            self._table.forget()
        encoded = [text.encode() for text in texts]
        data = b"".join(encoded)
        offsets = offsets_from_lengths([len(part) for part in encoded])
        try:
            found = self._table.find(np.frombuffer(data, np.uint8), offsets)
            self._table.learn(self._ask(data, found.new))
        except BaseException:
            self._table.forget()  # entries without ids must not be found again
            raise
        return self._table.gather(found, self._ask(data, found.long))

    def _ask(self, data: bytes, places: Int64Array) -> TokenBatch:
        return self._reference.encode([data[a:b].decode() for a, b in places.tolist()])
