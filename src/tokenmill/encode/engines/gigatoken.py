"""gigatoken, the fast engine for SentencePiece-style BPE that fastokens cannot read.

It needs two precautions. Its cache grows with every new word, so the tokenizer is rebuilt when the
process has grown too much. It uses Unicode 17, and the reference Unicode 16, so documents with a
code point on which they differ go to the reference (see `routing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import psutil

from tokenmill.installed import installed_version
from tokenmill.records import TokenBatch

CHECK_CHARACTERS = 64 << 20


class GigatokenEngine:
    """Encodes with `gigatoken`, on one thread: parallel calls would share one lock."""

    name = "gigatoken"

    def __init__(self, tokenizer_json: bytes, control_tokens: bool, cache_bytes: int) -> None:
        self.version = installed_version("gigatoken")
        self._json = tokenizer_json if control_tokens else without_special_tokens(tokenizer_json)
        self._cache_bytes = cache_bytes
        self._process = psutil.Process()
        self._rebuild()

    def _rebuild(self) -> None:
        import gigatoken

        self._tokenizer = gigatoken.Tokenizer.from_json(self._json)
        self._unchecked = 0
        self._base_bytes = self._process.memory_info().rss

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        if not texts:
            return TokenBatch(np.empty(0, np.uint32), np.zeros(1, np.int64))
        layout = self._tokenizer.encode_batch(list(texts), parallel=False).layout
        ids = np.asarray(layout.content.data)
        batch = TokenBatch(ids, np.asarray(layout.offsets.data).astype(np.int64))
        self._unchecked += sum(map(len, texts))
        if self._unchecked > CHECK_CHARACTERS:
            self._unchecked = 0
            if self._process.memory_info().rss > self._base_bytes + self._cache_bytes:
                self._rebuild()
        return batch


def without_special_tokens(tokenizer_json: bytes) -> bytes:
    """Return the tokenizer without its special tokens, so that their strings are ordinary text."""
    tokenizer = msgspec.json.decode(tokenizer_json)
    added = tokenizer.get("added_tokens") or []
    tokenizer["added_tokens"] = [token for token in added if not token.get("special")]
    return msgspec.json.encode(tokenizer)
