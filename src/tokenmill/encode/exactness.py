"""An engine must give the reference's ids: before the first result, and while it encodes.

    examine          the reference's answers to fixed strings and to some of the user's documents
    check_engine     an engine, held against these answers
    with_first_exact one engine after another, until one passes
    AuditSample      documents that are set aside while an engine encodes
    audit            these documents, encoded once more by the reference

Builds and the tokenizer for Hugging Face `datasets` both choose and watch their engine with this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import batch_of, join_batches
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.audit_share import AUDIT_SHARE
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import REPORT, Engine, Reference, TextError
from tokenmill.errors import EngineError
from tokenmill.records import TokenBatch

MAX_SHOWN_CHARACTERS = 80
MAX_SAMPLE_DOCUMENTS = 200
"""Documents of the user's own that an engine is tried on, beside the fixed strings."""
MAX_AUDIT_CHARACTERS = 100_000
TEXTS_AT_ONCE = 100
"""Texts of an audit that are encoded before there is a look whether the build ends."""
SHORT_CHARACTERS = 8_192
_WRONG = {
    "python": (
        "the tokenizer gives different ids for the same text",
        "ids must depend on the text alone, not on chance, earlier calls or the process",
    )
}
"""What is said, and what to do, where an engine is the user's own."""

T = TypeVar("T")


class CalibrationVetoError(EngineError):
    """An engine cannot be loaded or differs from the reference, and no result of it was kept."""

    @classmethod
    def of(cls, error: EngineError) -> CalibrationVetoError:
        """The veto for what went wrong."""
        return cls(error.what, where=error.where, why=error.why, hint=error.hint)


@dataclass(frozen=True, slots=True)
class Exam:
    """Texts and the ids that the reference gives them."""

    texts: list[str]
    expected: TokenBatch


def examine(reference: Reference, sample: Sequence[str]) -> Exam:
    """The exam for a tokenizer's engines: the fixed strings, then some of the user's documents."""
    texts = adversarial_texts(reference.special_tokens)
    return answers(reference, [*texts, *sample[:MAX_SAMPLE_DOCUMENTS]])


def answers(reference: Reference, texts: Sequence[str]) -> Exam:
    """The texts that the reference accepts, and their ids."""
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
    """Raise an EngineError that shows the first text on which the engine differs."""
    compare_tokens(engine.name, exam.texts, engine.encode(exam.texts), exam.expected)


def with_first_exact(
    names: Sequence[str],
    attempt: Callable[[str], T],
    on_veto: Callable[[str, CalibrationVetoError], None],
) -> T:
    """What `attempt` returns for the first engine that it does not veto.

    Raises:
        CalibrationVetoError: it has vetoed the last one, too.
    """
    *others, last = names
    for name in others:
        try:
            return attempt(name)
        except CalibrationVetoError as veto:
            on_veto(name, veto)
    return attempt(last)


@dataclass(slots=True)
class AuditSample:
    """Documents, and the ids that an engine gave them, until the reference is asked."""

    share: float = AUDIT_SHARE
    texts: list[str] = field(default_factory=list)
    ids: list[list[int]] = field(default_factory=list)
    num_characters: int = 0
    num_drawn: int = 0
    """Documents that the share chose; the short document of each unit is not among them."""

    def add(
        self,
        texts: Sequence[str],
        tokens: TokenBatch,
        hashes: npt.NDArray[np.uint64],
        with_short: bool,
    ) -> None:
        """Set aside about `share` of a batch, and one short document if asked to.

        `hashes`, of shape (len(texts),), choose: the same documents whatever the batches.
        """
        for i in self.draw(texts, hashes, with_short):
            self.texts.append(texts[i])
            self.ids.append(tokens.ids[tokens.offsets[i] : tokens.offsets[i + 1]].tolist())
            self.num_characters += len(texts[i])

    def draw(
        self, texts: Sequence[str], hashes: npt.NDArray[np.uint64], with_short: bool
    ) -> list[int]:
        """Indexes of the documents that `add` sets aside; they count as drawn."""
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
    """The share of documents that may differ at most, with 95 % confidence, if none of `num_equal`
    does that chance has drawn: the exact bound of Clopper and Pearson (1934), about 3 / num_equal.
    """
    return -math.expm1(math.log(0.05) / num_equal) if num_equal else 1.0


def audit(
    name: str,
    texts: Sequence[str],
    ids: Sequence[Sequence[int]],
    reference: Engine,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Raise an EngineError if the reference gives one of the texts other ids.

    `check`, which may raise, is called now and then.
    """
    for start in range(0, max(len(texts), len(ids)), TEXTS_AT_ONCE):
        check()
        chosen = slice(start, start + TEXTS_AT_ONCE)
        compare_tokens(name, texts[chosen], batch_of(ids[chosen]), reference.encode(texts[chosen]))


def compare_tokens(
    name: str, texts: Sequence[str], found: TokenBatch, expected: TokenBatch
) -> None:
    """Raise an EngineError where two encodings of the same texts differ."""
    if len(found.offsets) != len(expected.offsets):
        raise EngineError(f"{name} returned {len(found.offsets) - 1} documents for {len(texts)}")
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
