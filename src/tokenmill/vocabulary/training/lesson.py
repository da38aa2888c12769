"""The input and output of training a model: the interface between `train.py` and the models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.vocabulary.training.options import TrainOptions
from tokenmill.vocabulary.training.special_tokens import SpecialTokens


@dataclass(frozen=True, slots=True)
class Lesson:
    """The words to learn from, and the options."""

    words: WordCounts
    """The words of all groups, weighted."""
    groups: Mapping[str, WordCounts]
    weights: Mapping[str, int]
    """The weight of each group."""
    split: Split
    options: TrainOptions
    specials: SpecialTokens


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One trained vocabulary, and its files."""

    size: int
    """The number of ids, including special tokens."""
    special_ids: Mapping[str, int]
    files: Mapping[str, bytes]
    """`tokenizer.json` or `tokenizer.model`, and `tokenizer.tiktoken` if there is one."""
    num_tokens: int | None = None
    """The number of tokens in the corpus, if it is known without encoding the corpus."""


@dataclass(frozen=True, slots=True)
class Learned:
    """The vocabularies of one run, largest first."""

    vocabularies: list[Vocabulary]
    curve: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of a vocabulary size and the number of tokens in the corpus."""
    remarks: list[str] = field(default_factory=list)
    """Notes for the user."""


def alphabet_limit(lesson: Lesson) -> int | None:
    """Return how many characters can become tokens; None for all."""
    coverage = lesson.options.vocabulary.character_coverage
    if coverage is None:
        return lesson.options.vocabulary.limit_alphabet
    return covering_characters(lesson.words, coverage)


def covering_characters(words: WordCounts, coverage: float) -> int:
    """Return how many of the most frequent characters make up a share of the text."""
    text = words.data.tobytes().decode()
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    times = np.repeat(words.counts, np.diff(words.character_offsets()))
    totals = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    np.add.at(totals, codes, times)
    descending = np.sort(totals[totals > 0])[::-1]
    return int(np.searchsorted(np.cumsum(descending), coverage * descending.sum())) + 1
