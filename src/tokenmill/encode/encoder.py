"""The encode stage: call an engine and check its results."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.core.errors import EngineError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import join_batches
from tokenmill.encode.engine import REPORT, Engine

ALONE_CHARACTERS = 16 << 20
"""Longer documents are encoded one by one, so that their memory is freed before the next call."""


class Encoder:
    """Calls an engine, converts its failures to EngineError, and checks its results."""

    def __init__(self, engine: Engine, largest_id: int) -> None:
        self.name = engine.name
        self.version = engine.version
        self._engine = engine
        self._largest_id = largest_id

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text.

        Raises:
            EngineError: the engine failed, or returned invalid ids.
        """
        long = [i for i, text in enumerate(texts) if len(text) > ALONE_CHARACTERS]
        if not long:
            return self._call(texts)
        parts, start = [], 0
        for i in long:
            parts += [self._call(texts[start:i])] if i > start else []
            parts.append(self._call(texts[i : i + 1]))
            start = i + 1
        parts += [self._call(texts[start:])] if start < len(texts) else []
        return join_batches(parts)

    def _call(self, texts: Sequence[str]) -> TokenBatch:
        try:
            batch = self._engine.encode(texts)
        except (KeyboardInterrupt, SystemExit, MemoryError, EngineError):
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            if type(error).__module__.startswith("tokenmill"):
                raise
            raise EngineError(
                f"{self._engine.name} failed on a batch of {len(texts)} documents",
                why=f"{type(error).__name__}: {error}",
                hint=REPORT,
            ) from error
        self._check(texts, batch)
        return batch

    def _check(self, texts: Sequence[str], batch: TokenBatch) -> None:
        offsets, ids = batch.offsets, batch.ids
        right = (
            len(offsets) == len(texts) + 1
            and offsets[0] == 0
            and offsets[-1] == len(ids)
            and bool((offsets[1:] >= offsets[:-1]).all())
            and (not len(ids) or int(ids.max()) <= self._largest_id)
        )
        if not right:
            raise EngineError(
                f"{self._engine.name} returned invalid ids",
                why=f"it returned {len(offsets) - 1} documents for {len(texts)}, or an id above "
                f"{self._largest_id}",
                hint=REPORT,
            )
