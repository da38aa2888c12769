"""memo: the reference with a cache of its ids by chunk of text."""

from __future__ import annotations

import msgspec

from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import make_cuts
from tokenmill.encode.engines.chunks.engine import ChunkEngine
from tokenmill.encode.words.byte_strings import UInt8Array


class MemoEngine(ChunkEngine):
    """A chunk cache in front of a reference."""

    def __init__(
        self, reference: Engine, tokenizer_json: bytes, control_tokens: bool, cache_bytes: int
    ) -> None:
        cuts = make_cuts(msgspec.json.decode(tokenizer_json), control_tokens)
        super().__init__("memo", reference.version, cuts, ReferenceChunks(reference), cache_bytes)


class ReferenceChunks:
    """Encodes chunks with a reference."""

    def __init__(self, reference: Engine) -> None:
        self._reference = reference

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        """Return the ids of every chunk."""
        text = data.tobytes() if len(places) else b""
        return self._reference.encode([text[a:b].decode() for a, b in places.tolist()])
