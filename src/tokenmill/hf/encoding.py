"""Encode texts, and check a sample against the tokenizer's own library at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from tokenmill.core.records import DocumentBatch, TokenBatch
from tokenmill.encode.engine import Encoder, Engine, Reference
from tokenmill.encode.engine_ranking import (
    REFERENCE,
    first_exact,
    load_engine,
    rank_engines,
)
from tokenmill.encode.exactness import AuditSample, audit
from tokenmill.encode.kinds import load_any_reference
from tokenmill.encode.subword.sampler import SubwordSampler, rate_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.hf.log import logger
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.run.units.sampling import place_hashes

AUTO = "auto"
CACHE_BYTES = 512 << 20
"""Limit of an engine's own cache."""
AUDIT_CHARACTERS = 1 << 20
"""Texts kept for the audit, which runs when there are more."""


class ExactEncoder:
    """The fastest safe engine for a tokenizer, and the reference to check it.

    It can be pickled; the other process loads the engine again.
    """

    def __init__(self, file: TokenizerFile, wanted: str, sampling: Sampling | None = None) -> None:
        """Load the reference and the names of the candidate engines.

        With `sampling`, encodings are drawn, and no engine is needed.

        Raises:
            UserError: the tokenizer, or the engine that is wanted, cannot be used.
        """
        self._file = file
        self._wanted = wanted
        self._sampling = sampling
        self._encoder: Encoder | SampledEncoder | None = None
        self._audit: Audit | None = None
        if sampling is not None:
            self.reference, _ = load_any_reference(file)
            self._encoder = SampledEncoder(file, sampling)
            logger.debug("encodings are sampled: %s", sampling)
            return
        candidates = rank_engines(file, False, wanted)
        for name, why in candidates.remarks.items():
            logger.info("engine %s is not used: %s", name, why)
        self._names = candidates.names
        with ThreadPoolExecutor(1, "engine") as background:
            self._first = background.submit(self._load, self._names[0])
            self.reference, has_no_option = load_any_reference(file)
        if has_no_option:
            logger.warning("special tokens inside a text are matched: encode has no option for it")

    def choose_engine(self, sample: Sequence[str]) -> None:
        """Unless an engine is chosen, test the candidates on hard strings and some documents.

        Raises:
            EngineError: the engine that is wanted differs from the reference.
        """
        if self._encoder is None:
            engine = self._first_exact(sample)
            logger.debug("the engine %s encodes; candidates: %s", engine.name, self._names)
            self._encoder = Encoder(engine, self.reference.largest_id)
            if engine is not self.reference:
                self._audit = Audit(engine.name, self.reference)

    def _first_exact(self, sample: Sequence[str]) -> Engine:
        """The first engine that passes, or the reference if none does."""

        def load(name: str) -> Engine:
            engine = self._first.result() if name == self._names[0] else self._load(name)
            return engine or self.reference

        return first_exact(
            self._names,
            load,
            self.reference,
            sample,
            lambda name, veto: logger.warning("%s is not used: %s", name, veto),
        )

    def _load(self, name: str) -> Engine | None:
        return None if name == REFERENCE else load_engine(name, self._file, False, CACHE_BYTES)

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text.

        Raises:
            EngineError: the engine failed, or returned what cannot be right.
        """
        self.choose_engine(texts)
        assert self._encoder is not None
        return self._encoder.encode(texts)

    def hold_for_audit(self, texts: Sequence[str], tokens: TokenBatch) -> None:
        """Take a sample of a batch for the audit, and audit it when there is enough.

        Raises:
            EngineError: the engine differs from the reference.
        """
        if self._audit is not None:
            self._audit.add(texts, tokens)

    def finish_audit(self) -> None:
        """Audit the rest of the sample.

        Raises:
            EngineError: the engine differs from the reference.
        """
        if self._audit is not None:
            self._audit.make()

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactEncoder, (self._file, self._wanted, self._sampling)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Subword regularisation (Kudo, 2018; BPE-dropout: Provilkov et al., 2020)."""

    rate: float
    """The dropout of a BPE model, or the alpha of a Unigram model."""
    seed: int


class SampledEncoder:
    """Samples an encoding of each text that depends only on the text, the seed and the tokenizer.

    So batches, processes and the order of documents do not matter; equal texts are encoded alike.
    """

    def __init__(self, file: TokenizerFile, sampling: Sampling) -> None:
        """Load the tokenizer.

        Raises:
            UserError: the tokenizer has no such model, or the rate is out of range.
        """
        self._sampler = SubwordSampler(file, **{rate_of(file): sampling.rate})
        self._seed = sampling.seed

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """The ids of every text."""
        digests = [
            xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass")) for text in texts
        ]
        return self._sampler.encode(texts, keyed_hash(np.array(digests, np.uint64), self._seed))


class Audit:
    """A sample of encoded texts that is compared with the reference from time to time."""

    def __init__(self, engine_name: str, reference: Reference) -> None:
        self._engine_name = engine_name
        self._reference = reference
        self._sample = AuditSample()
        self._position = 0

    def add(self, texts: Sequence[str], tokens: TokenBatch) -> None:
        """Take a sample of a batch, and at least one short document."""
        positions = np.arange(self._position, self._position + len(texts))
        self._position += len(texts)
        hashes = place_hashes("", DocumentBatch(0, list(texts), positions, positions))
        self._sample.add(texts, tokens, hashes, with_short=True)
        if self._sample.num_characters > AUDIT_CHARACTERS:
            self.make()

    def make(self) -> None:
        """Compare the sample with the reference, and begin a new one."""
        sample, self._sample = self._sample, AuditSample()
        if sample.texts:
            audit(self._engine_name, sample.texts, sample.ids, self._reference)
