"""What a model is trained from, and what comes of it: the seam between `training.py` and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tokenmill.vocabulary.options import TrainOptions
from tokenmill.vocabulary.special_tokens import SpecialTokens
from tokenmill.words.counts import WordCounts
from tokenmill.words.splits import Split


@dataclass(frozen=True, slots=True)
class Lesson:
    """Words to learn from, and what is wanted."""

    words: WordCounts
    """All groups together, with their weights."""
    groups: Mapping[str, WordCounts]
    weights: Mapping[str, int]
    """How often each group counts."""
    split: Split
    options: TrainOptions
    specials: SpecialTokens


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One trained vocabulary, and its files."""

    size: int
    """Ids, special tokens included."""
    special_ids: Mapping[str, int]
    files: Mapping[str, bytes]
    """`tokenizer.json` or `tokenizer.model`, and `tokenizer.tiktoken` where there is one."""
    num_tokens: int | None = None
    """Tokens of the whole corpus, where the model knows them without encoding it."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Vocabularies of one run, the largest first."""

    vocabularies: list[Vocabulary]
    curve: list[tuple[int, int]] = field(default_factory=list)
    """Size and tokens of the whole corpus, for sizes in between."""
