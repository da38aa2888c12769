"""A tokenizer that is reported on: its file, its reference, its tokens, and the engines for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.exactness import CalibrationVetoError, check_engine, examine, with_first_exact
from tokenmill.encode.kinds import load_any_reference
from tokenmill.encode.token_bytes import Token, token_table, tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.errors import EngineError, UserError
from tokenmill.measure.measuring import Measured
from tokenmill.report.tokenizers.source import open_tokenizer

CACHE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Subject:
    """One tokenizer of a report."""

    name: str
    """As the user named it."""
    file: TokenizerFile
    reference: Reference
    tokens: dict[int, Token] | None
    """By id; None for a Python object."""
    control_tokens: bool
    """Whether its own code reads special tokens in texts as such, and cannot do otherwise."""

    @property
    def vocabulary_size(self) -> int:
        """Rows of an embedding: one more than the largest id."""
        return self.reference.largest_id + 1

    @property
    def measured(self) -> Measured:
        """What measuring needs of it; a build puts its prefix and one EOS around a document."""
        table = None
        if self.tokens is not None:
            table = token_table(self.tokens, self.reference.largest_id)
        return Measured(self.reference, table, len(self.reference.prefix) + 1)

    def exact_engine(self, sample: Sequence[str]) -> Engine:
        """The first engine in the ranking that gives the reference's ids.

        Raises:
            EngineError: not even the last one does.
        """
        exam = examine(self.reference, sample)

        def attempt(name: str) -> Engine:
            try:
                engine = load_engine(name, self.file, self.control_tokens, CACHE_BYTES)
                check_engine(engine, exam)
            except EngineError as error:
                raise CalibrationVetoError.of(error) from error
            return engine

        names = rank_engines(self.file, self.control_tokens).names
        return with_first_exact(names, attempt, lambda name, veto: None)


def open_subject(tokenizer: str | Path | object, encoding: str = "") -> Subject:
    """Open a tokenizer as other commands name it.

    Raises:
        UserError: there is no such tokenizer, or it cannot be loaded.
    """
    file = open_tokenizer(tokenizer, encoding)
    reference, matched = load_any_reference(file)
    return Subject(tokenizer_name(tokenizer), file, reference, tokens_of(file), matched)


def open_subjects(tokenizers: Sequence[str | Path | object], encoding: str) -> list[Subject]:
    """Open several tokenizers; of more than one, `encoding` is meant for the rank files.

    Raises:
        UserError: there is no such tokenizer, or one is named twice.
    """
    subjects: list[Subject] = []
    for tokenizer in tokenizers:
        is_meant = len(tokenizers) == 1 or str(tokenizer).endswith(".tiktoken")
        subject = open_subject(tokenizer, encoding if is_meant else "")
        if any(subject.name == other.name for other in subjects):
            raise UserError("a tokenizer is named twice", where=subject.name)
        subjects.append(subject)
    if not subjects:
        raise UserError("no tokenizer to report on", hint="name one or several")
    return subjects
