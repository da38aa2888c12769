"""Texts to ids, with a sample held against the tokenizer's own library while it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenmill.encode.calibration import audit
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import Reference
from tokenmill.encode.selection import load_any_reference
from tokenmill.encode.tokenizer_file import TokenizerFile
from tokenmill.hf.engines import EngineChoice
from tokenmill.hf.log import logger
from tokenmill.records import DocumentBatch, TokenBatch
from tokenmill.run.sampling import audit_sample, document_hashes

AUDIT_CHARACTERS = 1 << 20
"""Texts held back for the audit; it is made as soon as there are more."""
SHORT_CHARACTERS = 2_000
MAX_SAMPLE_DOCUMENTS = 200
"""Documents of the user's that an engine is tried on."""


class ExactEncoder:
    """The best engine for a tokenizer, behind its guards, and the reference beside it.

    It can be pickled; the engine is loaded anew in the other process.
    """

    def __init__(self, file: TokenizerFile, wanted: str) -> None:
        """Load the reference, while the engine loads in a thread.

        Raises:
            UserError: the tokenizer, or the engine that is wanted, cannot be used.
        """
        self._file = file
        self._wanted = wanted
        self._engines = EngineChoice(file, wanted)
        self.reference, has_no_option = load_any_reference(file)
        if has_no_option:
            logger.warning(
                "special tokens that stand in a text are matched: encode has no option for it"
            )
        self._encoder: Encoder | None = None
        self._audit: Audit | None = None

    def choose_engine(self, sample: Sequence[str]) -> None:
        """Try the engines on some documents, unless one is chosen.

        Raises:
            EngineError: the engine that is wanted differs from the reference.
        """
        if self._encoder is None:
            engine = self._engines.best(self.reference, sample[:MAX_SAMPLE_DOCUMENTS])
            self._encoder = Encoder(engine, self.reference.largest_id)
            if engine is not self.reference:
                self._audit = Audit(engine.name, self.reference)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text.

        Raises:
            EngineError: the engine failed, or returned what cannot be right.
        """
        self.choose_engine(texts)
        assert self._encoder is not None
        return self._encoder.encode(texts)

    def hold_for_audit(self, texts: Sequence[str], tokens: TokenBatch) -> None:
        """Take a sample of what was encoded, and audit it when there is enough.

        Raises:
            EngineError: the engine differs from the reference.
        """
        if self._audit is not None:
            self._audit.add(texts, tokens)

    def finish_audit(self) -> None:
        """Audit what has been held back.

        Raises:
            EngineError: the engine differs from the reference.
        """
        if self._audit is not None:
            self._audit.make()

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactEncoder, (self._file, self._wanted)


class Audit:
    """Documents that a hash has chosen, encoded once more by the reference."""

    def __init__(self, engine_name: str, reference: Reference) -> None:
        self._engine_name = engine_name
        self._reference = reference
        self._texts: list[str] = []
        self._ids: list[list[int]] = []
        self._characters = 0
        self._position = 0

    def add(self, texts: Sequence[str], tokens: TokenBatch) -> None:
        """Take a sample of a batch, and at least one short document."""
        positions = np.arange(self._position, self._position + len(texts))
        self._position += len(texts)
        batch = DocumentBatch(0, list(texts), positions, np.zeros_like(positions))
        hashes = document_hashes("", batch)
        for i in audit_sample(texts, hashes, SHORT_CHARACTERS):
            self._texts.append(texts[i])
            self._ids.append(tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]].tolist())
            self._characters += len(texts[i])
        if self._characters > AUDIT_CHARACTERS:
            self.make()

    def make(self) -> None:
        """Compare, and begin anew."""
        if self._texts:
            audit(self._engine_name, self._texts, self._ids, self._reference)
        self._texts, self._ids, self._characters = [], [], 0
