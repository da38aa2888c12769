"""Encode texts, and check a sample against the tokenizer's own library at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from tokenmill.core.records import DocumentBatch, TokenBatch
from tokenmill.encode.engine import Encoder, Engine
from tokenmill.encode.engine_ranking import (
    REFERENCE,
    first_exact,
    load_engine,
    rank_engines,
)
from tokenmill.encode.exactness import AuditSample, audit
from tokenmill.encode.kinds import load_any_reference
from tokenmill.encode.subword import SubwordSampler, rate_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.hf.summary import logger
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.run.units.attempt import place_hashes

AUTO = "auto"
CACHE_BYTES = 512 << 20
"""Limit of an engine's own cache."""
AUDIT_CHARACTERS = 1 << 20
"""Texts kept for the audit, which runs when there are more."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Subword regularisation (Kudo, 2018; BPE-dropout: Provilkov et al., 2020)."""

    rate: float
    """The dropout of a BPE model, or the alpha of a Unigram model."""
    seed: int


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
        self._arguments = file, wanted, sampling
        self._file = file
        self._encoder: Encoder | SampledEncoder | None = None
        self._sample: AuditSample | None = None
        self._num_audited = 0
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

    def __reduce__(self) -> tuple[Any, ...]:
        return ExactEncoder, self._arguments

    def choose_engine(self, sample: Sequence[str]) -> None:
        """Unless an engine is chosen, test the candidates on hard strings and some documents.

        The first one that passes encodes, or the reference if none does.

        Raises:
            EngineError: the engine that is wanted differs from the reference.
        """
        if self._encoder is not None:
            return

        def load(name: str) -> Engine:
            engine = self._first.result() if name == self._names[0] else self._load(name)
            return engine or self.reference

        def tell(name: str, veto: object) -> None:
            logger.warning("%s is not used: %s", name, veto)

        engine = first_exact(self._names, load, self.reference, sample, tell)
        logger.debug("the engine %s encodes; candidates: %s", engine.name, self._names)
        self._encoder = Encoder(engine, self.reference.largest_id)
        self._engine_name = engine.name
        if engine is not self.reference:
            self._sample = AuditSample()

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
        if self._sample is None:
            return
        positions = np.arange(self._num_audited, self._num_audited + len(texts))
        self._num_audited += len(texts)
        hashes = place_hashes("", DocumentBatch(0, list(texts), positions, positions))
        self._sample.add(texts, tokens, hashes, with_short=True)
        if self._sample.num_characters > AUDIT_CHARACTERS:
            self.finish_audit()

    def finish_audit(self) -> None:
        """Compare the sample with the reference, and begin a new one.

        Raises:
            EngineError: the engine differs from the reference.
        """
        if self._sample is not None and self._sample.texts:
            sample, self._sample = self._sample, AuditSample()
            audit(self._engine_name, sample.texts, sample.ids, self.reference)


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
        data = (text.encode("utf-8", "surrogatepass") for text in texts)
        digests = np.array([xxhash.xxh3_64_intdigest(each) for each in data], np.uint64)
        return self._sampler.encode(texts, keyed_hash(digests, self._seed))
