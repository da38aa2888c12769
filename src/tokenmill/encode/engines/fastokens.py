"""fastokens, the fastest engine for byte-level BPE.

Its memory is bounded. For tokenizers that the gate admits, it agrees with the reference on every
Unicode code point (`bench/code_points.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tokenmill.core.installed import installed_version
from tokenmill.core.records import TokenBatch


class FastokensEngine:
    """Encodes with `fastokens`, through its flat call, which creates no Python object per token."""

    name = "fastokens"

    def __init__(self, tokenizer_json: bytes, control_tokens: bool) -> None:
        from fastokens._native import Tokenizer

        self.version = installed_version("fastokens")
        self._tokenizer = Tokenizer.from_json_str(tokenizer_json.decode())
        self._tokenizer.no_truncation()
        self._split_special_tokens = not control_tokens

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        ids, offsets = self._tokenizer.encode_batch_flat(
            list(texts), split_special_tokens=self._split_special_tokens
        )
        return TokenBatch(
            np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64).astype(np.int64)
        )
