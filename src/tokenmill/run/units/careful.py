"""Encode documents one at a time and announce each, for units that failed in batches.

If the worker then hangs or dies, the main process knows the document and the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tokenmill.core.errors import EngineError
from tokenmill.core.records import DocumentBatch
from tokenmill.encode.engine import TextError
from tokenmill.encode.probe import Step
from tokenmill.read.source import Sources
from tokenmill.run.messages import Encoding

Announce = Callable[[Encoding], None]

T = TypeVar("T")


class CarefulCalls:
    """Runs the steps of a tokenizer and its engine on one document at a time."""

    def __init__(self, sources: Sources, load_steps: Callable[[], list[Step]]) -> None:
        self._sources = sources
        self._load_steps = load_steps
        self._steps: list[Step] | None = None

    def each(
        self, batch: DocumentBatch, engine: str, call: Callable[[str], T], announce: Announce
    ) -> list[T]:
        """Return the result of `call`, which calls `engine`, for each document.

        Raises:
            EngineError: a document failed. The error names its source, its position and the step.
        """
        if self._steps is None:
            self._steps = self._load_steps()
        last = (f"engine {engine}", call)
        return [self._call(batch, index, last, announce) for index in range(len(batch.texts))]

    def _call(
        self,
        batch: DocumentBatch,
        index: int,
        last: tuple[str, Callable[[str], T]],
        announce: Announce,
    ) -> T:
        text, position = batch.texts[index], int(batch.positions[index])
        encoding = Encoding(
            source=batch.source, position=position, num_bytes=int(batch.record_bytes[index])
        )
        try:
            for encoding.step, step in self._steps or ():
                announce(encoding)
                step(text)
            encoding.step, call = last
            announce(encoding)
            return call(text)
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
