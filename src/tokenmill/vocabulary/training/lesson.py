"""What a model is trained from, and what comes of it: the seam between `train.py` and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tokenmill.vocabulary.training.options import TrainOptions
from tokenmill.vocabulary.training.special_tokens import SpecialTokens
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
    remarks: list[str] = field(default_factory=list)
    """What a user should know."""


def alphabet_limit(lesson: Lesson) -> int | None:
    """How many characters become tokens at most; None for all."""
    coverage = lesson.options.vocabulary.character_coverage
    if coverage is None:
        return lesson.options.vocabulary.limit_alphabet
    return covering_characters(lesson.words, coverage)


def covering_characters(words: WordCounts, coverage: float) -> int:
    """How many of the most frequent characters make up a share of the text."""
    text = words.data.tobytes().decode()
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    times = np.repeat(words.counts, np.diff(words.character_offsets()))
    totals = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    np.add.at(totals, codes, times)
    descending = np.sort(totals[totals > 0])[::-1]
    return int(np.searchsorted(np.cumsum(descending), coverage * descending.sum())) + 1
