"""A tokenizer in a report: its file, reference, tokens and engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.encode.encodings import RankEncoding
from tokenmill.encode.engine import Reference
from tokenmill.encode.kinds import load_any_reference
from tokenmill.encode.probe import require_harmless
from tokenmill.encode.token_bytes import Token, tokens_of
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file, tokenizer_name
from tokenmill.store.dataset import Dataset, is_dataset
from tokenmill.store.stored_reference import stored_tokenizer

if TYPE_CHECKING:
    from tokenmill.run.tasks.measure import MeasuredTokenizer


def open_tokenizer(
    tokenizer: str | Path | object, encoding: str | RankEncoding = ""
) -> TokenizerFile:
    """Return the tokenizer of a name, an object or a dataset.

    Raises:
        UserError: the tokenizer cannot be found.
        VerificationError: the dataset's tokenizer is not the one that encoded it.
    """
    dataset = dataset_of(tokenizer)
    if dataset:
        return stored_tokenizer(dataset)
    return require_harmless(load_tokenizer_file(tokenizer, encoding))


def dataset_of(tokenizer: str | Path | object) -> Dataset | None:
    """The dataset, if it was given instead of its tokenizer."""
    if isinstance(tokenizer, Dataset):
        return tokenizer
    if not isinstance(tokenizer, (str, Path)):
        return None
    folder = local_path(tokenizer, "the tokenizer")
    return Dataset(folder) if is_dataset(folder) else None


MOST_IDS = 1 << 24


@dataclass(frozen=True, slots=True)
class Subject:
    """One tokenizer of a report."""

    name: str
    """The name that the user gave."""
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
    def measured(self) -> MeasuredTokenizer:
        """The properties needed for measuring."""
        from tokenmill.run.tasks.measure import MeasuredTokenizer  # loads a compiler

        return MeasuredTokenizer(self.file, self.reference, self.control_tokens)


def open_subject(tokenizer: str | Path | object, encoding: str | RankEncoding = "") -> Subject:
    """Open a tokenizer by name, as for other commands.

    Raises:
        UserError: the tokenizer cannot be found or loaded.
    """
    file = open_tokenizer(tokenizer, encoding)
    reference, matched = load_any_reference(file)
    if reference.largest_id >= MOST_IDS:
        raise UserError(
            "the tokenizer does not say how many tokens it has",
            where=tokenizer_name(tokenizer),
            why=f"a report counts the use of each token, for up to {MOST_IDS:,} of them",
            hint="give the object a vocab_size or a length",
        )
    return Subject(tokenizer_name(tokenizer), file, reference, tokens_of(file), matched)


def open_subjects(
    tokenizers: str | Path | object | Sequence[str | Path | object], encoding: str | RankEncoding
) -> list[Subject]:
    """Open one or several tokenizers; `encoding` applies to rank files.

    Raises:
        UserError: a tokenizer cannot be found, or is named twice.
    """
    names: list[object] = [tokenizers]
    if isinstance(tokenizers, Sequence) and not isinstance(tokenizers, str):
        names = [*tokenizers]
    subjects: list[Subject] = []
    for tokenizer in names:
        is_meant = len(names) == 1 or str(tokenizer).endswith(".tiktoken")
        subject = open_subject(tokenizer, encoding if is_meant else "")
        if any(subject.name == other.name for other in subjects):
            raise UserError("a tokenizer is named twice", where=subject.name)
        subjects.append(subject)
    if not subjects:
        raise UserError("no tokenizer to report on", hint="name one or several")
    return subjects
