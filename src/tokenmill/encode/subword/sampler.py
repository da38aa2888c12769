"""Sample the ids of texts, with BPE-dropout or from a Unigram model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, TokenBatch
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.subword.merges import MergeSampler
from tokenmill.encode.subword.unigram import UnigramSampler
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import read_tokenizer
from tokenmill.kernels.permutation import UInt64Array


class _ModelSampler(Protocol):
    def encode(self, text: str, key: np.uint64) -> Int32Array: ...


class SubwordSampler:
    """Samples an encoding of each text, by BPE-dropout or from a Unigram model.

    The ids depend only on the text, its key and the tokenizer.

    Args:
        file: A tokenizer.json with a BPE or Unigram model.
        dropout: For BPE, the probability of skipping a merge, in [0, 1]. At 0 nothing is random,
            and the reference encodes.
        alpha: For Unigram, the sharpness of the distribution, 0 or more. At 0 all segmentations
            are equally likely; at infinity nothing is random, and the reference encodes.

    Raises:
        UserError: the tokenizer cannot be sampled, or the rate is for the other model or out of
            range.
    """

    def __init__(
        self, file: TokenizerFile, *, dropout: float | None = None, alpha: float | None = None
    ) -> None:
        tokenizer = _sampleable(file)
        _check_rates(tokenizer["model"]["type"], dropout, alpha, file.origin)
        self.dropout, self.alpha = dropout, alpha
        self.reference = HuggingFaceReference(file, control_tokens=False)
        self._sampler: _ModelSampler | None = None
        if dropout:
            self._sampler = MergeSampler(tokenizer, dropout)
        elif alpha is not None and alpha < math.inf:
            self._sampler = UnigramSampler(tokenizer, alpha, file.origin)

    def encode(self, texts: Sequence[str], keys: UInt64Array) -> TokenBatch:
        """Sample the ids of every text; `keys`, shape (n,), come from `draws.document_keys`.

        Raises:
            EngineError: the library that normalizes and splits the texts failed.
        """
        if self._sampler is None:
            return self.reference.encode(texts)
        pairs = zip(texts, keys, strict=True)
        return batch_of([self._sampler.encode(text, key) for text, key in pairs])


def rate_of(file: TokenizerFile) -> str:
    """Return the name of the sampling option for the tokenizer's model: "dropout" or "alpha".

    Raises:
        UserError: the tokenizer is not a tokenizer.json with a BPE or Unigram model.
    """
    return "dropout" if _sampleable(file)["model"]["type"] == "BPE" else "alpha"


def _sampleable(file: TokenizerFile) -> dict[str, Any]:
    """Return the tokenizer.json, if it can be sampled."""
    if not KINDS[file.kind].is_json:
        raise UserError(
            "the tokenizer cannot be sampled",
            where=file.origin,
            why=f"its kind is {file.kind}; sampling needs a tokenizer.json",
            hint="convert it to tokenizer.json, and check that its ids stay the same",
        )
    tokenizer = read_tokenizer(file.data)
    kind = tokenizer["model"]["type"]
    if kind not in ("BPE", "Unigram"):
        raise UserError(
            "the tokenizer cannot be sampled",
            where=file.origin,
            why=f"its model is {kind}; only BPE and Unigram can be sampled",
            hint="encode without sampling, or use a tokenizer with a BPE or Unigram model",
        )
    return tokenizer


def _check_rates(kind: str, dropout: float | None, alpha: float | None, origin: str) -> None:
    wanted, other = ("dropout", alpha) if kind == "BPE" else ("alpha", dropout)
    rate = dropout if kind == "BPE" else alpha
    if rate is None or other is not None:
        why = f"its model is {kind}, which supports only {wanted}"
        hint = f"use only {wanted}"
        raise UserError("wrong sampling option for the tokenizer", where=origin, why=why, hint=hint)
    largest = 1.0 if kind == "BPE" else math.inf
    if not 0 <= rate <= largest:
        why = f"got {rate}, must be in [0, {largest}]"
        raise UserError(f"{wanted} is out of range", why=why)
