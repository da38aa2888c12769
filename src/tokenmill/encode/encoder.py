"""The encode stage: an engine behind its guards, with policies for special strings and ids."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.boundaries import join_batches
from tokenmill.encode.engine import REPORT, Engine
from tokenmill.errors import EngineError
from tokenmill.records import TokenBatch

ALONE_CHARACTERS = 16 << 20
"""A longer document is encoded in a call of its own: its memory is free before the next."""


class Encoder:
    """Calls an engine so that no panic passes as anything else, and checks what it returns."""

    def __init__(self, engine: Engine, largest_id: int) -> None:
        self.name = engine.name
        self.version = engine.version
        self._engine = engine
        self._largest_id = largest_id

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text.

        Raises:
            EngineError: the engine panicked, or returned what cannot be right.
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
        except BaseException as error:  # a Rust panic is no Exception
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
                why=f"{len(offsets) - 1} documents for {len(texts)}, or an id above "
                f"{self._largest_id}",
                hint=REPORT,
            )
