"""Check that an engine gives the reference's ids, before the first result and during a run.

    examine          encode hostile strings and some of the user's documents with the reference
    check_engine     compare an engine with these answers
    with_first_exact try one engine after another until one passes
    AuditSample      documents set aside while an engine encodes
    audit            encode these documents again with the reference, and compare

Builds and the tokenizer for Hugging Face `datasets` both use this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import EngineError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.adversarial import adversarial_texts, texts_of_classes
from tokenmill.encode.boundaries import batch_of, join_batches
from tokenmill.encode.engine import REPORT, Encoder, Engine, Reference, TextError

MAX_SHOWN_CHARACTERS = 80
MAX_SAMPLE_DOCUMENTS = 200
"""How many of the user's documents an engine is tested on, in addition to the hostile strings."""
MAX_AUDIT_CHARACTERS = 100_000
TEXTS_AT_ONCE = 100
"""Texts that an audit encodes between two calls of `check`."""
SHORT_CHARACTERS = 8_192
AUDIT_SHARE = 5e-4
"""With fastokens and 37,092 documents of 4 kB, audits took 0.9 % of a build's CPU time for GPT-2,
and 0.3 % for Llama 2."""
WHOLE_BYTES = 3_000_000
"""Inputs of up to this size are audited whole, such as 1,000 documents of 3 kB. GPT-2's reference,
with 2.6 MB/s, takes a second."""
AUDIT_BYTES = 1_000_000
"""How much of larger inputs is audited, at least: 250 documents of 4 kB, in less than half a
second. Inputs of slow tokenizers are audited whole up to this size; one with 0.2 MB/s takes 5 s."""
_WRONG = {
    "python": (
        "the tokenizer gives different ids for the same text",
        "ids must depend only on the text, not on chance, earlier calls or the process",
    )
}
"""The message and the hint for an engine that is the user's own code."""

T = TypeVar("T")


class CalibrationVetoError(EngineError):
    """An engine failed calibration: it does not load, or its ids differ from the reference.

    None of its results were kept.
    """

    @classmethod
    def of(cls, error: EngineError) -> CalibrationVetoError:
        """Convert another error of the engine."""
        return cls(error.what, where=error.where, why=error.why, hint=error.hint)


@dataclass(frozen=True, slots=True)
class Exam:
    """Texts and the ids that the reference gives them."""

    texts: list[str]
    expected: TokenBatch


def examine(reference: Reference, sample: Sequence[str]) -> Exam:
    """Return the exam for engines: hostile strings, then some of the user's documents."""
    return answers(reference, [*hostile_texts(reference), *sample[:MAX_SAMPLE_DOCUMENTS]])


def hostile_texts(reference: Reference) -> list[str]:
    """Return strings that are likely to break engines, the same ones on every machine."""
    fixed = adversarial_texts(reference.special_tokens)
    return [*fixed, *texts_of_classes(reference.normalize)]


def answers(reference: Reference, texts: Sequence[str]) -> Exam:
    """Return the texts that the reference accepts, and their ids."""
    encoder = Encoder(reference, reference.largest_id)
    if not reference.may_refuse:
        return Exam(list(texts), encoder.encode(texts))
    accepted: list[str] = []
    batches = [encoder.encode([])]
    for text in texts:
        try:
            batches.append(encoder.encode([text]))
        except TextError:
            continue
        accepted.append(text)
    return Exam(accepted, join_batches(batches))


def check_engine(engine: Engine, exam: Exam) -> None:
    """Raise an EngineError with the first text that the engine encodes differently."""
    compare_tokens(engine.name, exam.texts, engine.encode(exam.texts), exam.expected)


def with_first_exact(
    names: Sequence[str],
    attempt: Callable[[str], T],
    on_veto: Callable[[str, CalibrationVetoError], None],
) -> T:
    """Return what `attempt` returns for the first engine that it does not veto.

    Raises:
        CalibrationVetoError: it vetoed all engines.
    """
    *others, last = names
    for name in others:
        try:
            return attempt(name)
        except CalibrationVetoError as veto:
            on_veto(name, veto)
    return attempt(last)


def audit_share(wanted: float | None, num_bytes: int, is_slow: bool) -> float:
    """Return the share of documents to audit: `wanted`, or a share that suits inputs of a size."""
    if wanted is not None:
        return wanted
    if num_bytes <= (AUDIT_BYTES if is_slow else WHOLE_BYTES):
        return 1.0
    return max(AUDIT_SHARE, AUDIT_BYTES / num_bytes)


@dataclass(slots=True)
class AuditSample:
    """Documents set aside for an audit, with the ids that an engine gave them."""

    share: float = AUDIT_SHARE
    texts: list[str] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    num_characters: int = 0
    num_drawn: int = 0
    """How many documents were chosen by `share`, without the extra short document per unit."""

    def add(
        self,
        texts: Sequence[str],
        tokens: TokenBatch,
        hashes: npt.NDArray[np.uint64],
        with_short: bool,
    ) -> None:
        """Set aside about `share` of a batch, and one short document if `with_short`.

        `hashes`, shape (len(texts),), decide which, so the choice does not depend on batch sizes.
        """
        for i in self.draw(texts, hashes, with_short):
            self.texts.append(texts[i])
            self.ids.append(tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]].tolist())
            self.num_characters += len(texts[i])

    def draw(
        self, texts: Sequence[str], hashes: npt.NDArray[np.uint64], with_short: bool
    ) -> list[int]:
        """Return the indexes of the documents that `add` sets aside, and count them."""
        bound = np.uint64(min(int(self.share * 2**64), 2**64 - 1))
        within = np.flatnonzero(~hashes <= bound).tolist() if self.share else []
        drawn = [i for i in within if 0 < len(texts[i]) <= MAX_AUDIT_CHARACTERS]
        self.num_drawn += len(drawn)
        short: list[int] = []
        if with_short:
            short = [i for i, text in enumerate(texts) if len(text) <= SHORT_CHARACTERS]
            short = sorted(short, key=lambda i: hashes[i])[:1]
        return sorted({*drawn, *short})


def excluded_error_rate(num_equal: int) -> float:
    """Return the largest error rate compatible with `num_equal` audits without a difference.

    It is the upper bound at 95 % confidence for randomly drawn documents: the exact bound of
    Clopper and Pearson (1934), about 3 / num_equal.
    """
    return -math.expm1(math.log(0.05) / num_equal) if num_equal else 1.0


def audit(
    name: str,
    texts: Sequence[str],
    ids: Sequence[Sequence[int]],
    reference: Engine,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Raise an EngineError if the ids of a text differ from those of the reference.

    `check` is called regularly; it may raise to stop the audit. The last text is encoded first, so
    that a tokenizer which learns from texts does not learn from them in the same order again.
    """
    texts, ids = texts[::-1], ids[::-1]
    for start in range(0, max(len(texts), len(ids)), TEXTS_AT_ONCE):
        check()
        chosen = slice(start, start + TEXTS_AT_ONCE)
        compare_tokens(name, texts[chosen], batch_of(ids[chosen]), reference.encode(texts[chosen]))


def compare_tokens(
    name: str, texts: Sequence[str], found: TokenBatch, expected: TokenBatch
) -> None:
    """Raise an EngineError if two encodings of the same texts differ."""
    if len(found.offsets) != len(expected.offsets):
        raise EngineError(f"{name} returned {len(found.offsets) - 1} documents for {len(texts)}")
    if np.array_equal(found.offsets, expected.offsets) and np.array_equal(found.ids, expected.ids):
        return  # the usual case, a hundred times as fast as text by text
    for i, text in enumerate(texts):
        ours = found.ids[found.offsets[i] : found.offsets[i + 1]]
        theirs = expected.ids[expected.offsets[i] : expected.offsets[i + 1]]
        if not np.array_equal(ours, theirs):
            common = min(len(ours), len(theirs))
            differ = np.flatnonzero(ours[:common] != theirs[:common])
            first = int(differ[0]) if len(differ) else common
            what, hint = _WRONG.get(
                name, (f"{name} gives ids that differ from the reference", REPORT)
            )
            raise EngineError(
                what,
                where=f"text {text[:MAX_SHOWN_CHARACTERS]!r}, token {first}",
                why=f"{ours[first : first + 5].tolist()} instead of "
                f"{theirs[first : first + 5].tolist()}",
                hint=hint,
            )
