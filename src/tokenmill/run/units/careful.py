"""Documents encoded one at a time, each announced first: for a unit that failed in batches.

If a worker hangs or dies then, the main process knows the document, and the step that it was in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from tokenmill.boundaries import join_batches
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import TextError
from tokenmill.encode.steps import Step
from tokenmill.errors import EngineError
from tokenmill.read.sources import Source
from tokenmill.records import DocumentBatch, TokenBatch


class Encoding(msgspec.Struct, tag="encoding", kw_only=True):
    """From a worker: it begins with a document, or with a batch that holds long ones."""

    source: int
    position: int
    num_bytes: int
    step: str = ""
    """As "normalizer", "pre-tokenizer" or "engine tokenizers"; "" for a batch."""


Announce = Callable[[Encoding], None]


class CarefulEncoder:
    """Encodes the documents of a batch one by one; the ids are those of the whole batch."""

    def __init__(
        self, encoder: Encoder, sources: Sequence[Source], load_steps: Callable[[], list[Step]]
    ) -> None:
        self._encoder = encoder
        self._sources = sources
        self._load_steps = load_steps
        self._steps: list[Step] | None = None

    def encode(self, batch: DocumentBatch, announce: Announce) -> TokenBatch:
        """The ids of every document.

        Raises:
            EngineError: one failed; the error names its source, its position and the step.
        """
        if self._steps is None:
            self._steps = self._load_steps()
        parts = [self._encode(batch, index, announce) for index in range(len(batch.texts))]
        return join_batches(parts)

    def _encode(self, batch: DocumentBatch, index: int, announce: Announce) -> TokenBatch:
        text, position = batch.texts[index], int(batch.positions[index])
        encoding = Encoding(
            source=batch.source, position=position, num_bytes=int(batch.record_bytes[index])
        )
        try:
            for encoding.step, call in self._steps or ():
                announce(encoding)
                call(text)
            encoding.step = f"engine {self._encoder.name}"
            announce(encoding)
            return self._encoder.encode([text])
        except (KeyboardInterrupt, SystemExit, MemoryError, TextError):
            raise
        except BaseException as error:  # a Rust panic is not an Exception
            why = getattr(error, "why", "") or f"{type(error).__name__}: {error}"
            raise EngineError(
                "the tokenizer failed on a document",
                where=f"{self._sources[batch.source].name}, position {position}",
                why=f"{encoding.step}: {why}",
                hint="remove the document, or use another tokenizer",
            ) from error
