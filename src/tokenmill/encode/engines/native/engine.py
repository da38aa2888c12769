"""native: encode chunks of text in compiled code, with a table of chunks seen before.

    text ─cuts─▶ chunks ─table─▶ ids
                      new chunks ─model─▶ ids          normalizer, pre-tokenizer and model, compiled
                                 chunks that the model leaves out ─reference─▶ ids

A model leaves out chunks that it may not encode exactly, such as those with composing characters
or added tokens. There are few of them, so exactness costs little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.core.installed import installed_version
from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.boundaries import with_documents
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.chunks.cuts import Cuts
from tokenmill.encode.engines.chunks.engine import ChunkEngine
from tokenmill.encode.engines.memo import ReferenceChunks
from tokenmill.encode.words.byte_strings import UInt8Array

BoolArray = npt.NDArray[np.bool_]


class NativeModel(Protocol):
    """Runs all steps of a tokenizer on chunks of text, in compiled code."""

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> tuple[TokenBatch, BoolArray]:
        """Encode the chunks `data[start:stop]`, for each row of `places`.

        Returns:
            The ids of every chunk, and which chunks are left to the reference, shape (num_chunks,).
            Those have no ids here.
        """


class NativeEngine(ChunkEngine):
    """A compiled model with a table of chunks; the reference is loaded on first use."""

    def __init__(
        self,
        model: NativeModel,
        cuts: Cuts,
        load_reference: Callable[[], Engine],
        cache_bytes: int,
    ) -> None:
        version = installed_version("tokenmill")
        super().__init__("native", version, cuts, _Chunks(model, load_reference), cache_bytes)


class _Chunks:
    """Encodes chunks with a model, and those that it leaves out with the reference."""

    def __init__(self, model: NativeModel, load_reference: Callable[[], Engine]) -> None:
        self._model = model
        self._load_reference = load_reference
        self._reference: ReferenceChunks | None = None

    def encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        """Return the ids of every chunk."""
        tokens, left_out = self._model.encode_chunks(data, places)
        if not left_out.any():
            return tokens
        self._reference = self._reference or ReferenceChunks(self._load_reference())
        exact = self._reference.encode_chunks(data, places[left_out])
        return with_documents(tokens, np.flatnonzero(left_out).tolist(), exact)
