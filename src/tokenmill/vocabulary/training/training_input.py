"""The input and output of training a model: what `train.py` gives to a model, and gets back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.vocabulary.training.options import TrainOptions
from tokenmill.vocabulary.training.special_tokens import SpecialTokens


@dataclass(frozen=True, slots=True)
class TrainingInput:
    """The words to train on, and the options."""

    words: WordCounts
    """The words of all groups, weighted."""
    groups: Mapping[str, WordCounts]
    weights: Mapping[str, int]
    """The weight of each group."""
    split: Split
    options: TrainOptions
    specials: SpecialTokens

    def sizes(self, num_tokens: int) -> list[int]:
        """Return the sizes of the vocabularies, the largest first, if this many tokens were learnt.

        Sizes include special tokens.
        """
        largest = num_tokens + len(self.specials)
        return [largest, *(n for n in reversed(self.options.smaller_sizes) if n < largest)]


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
class TrainedModel:
    """The vocabularies of one training, largest first."""

    vocabularies: list[Vocabulary]
    curve: list[tuple[int, int]] = field(default_factory=list)
    """Pairs of a vocabulary size and the number of tokens in the corpus."""
    remarks: list[str] = field(default_factory=list)
    """Notes for the user."""


def alphabet_limit(given: TrainingInput) -> int | None:
    """Return how many of the most frequent characters can become tokens; None for all."""
    words, coverage = given.words, given.options.vocabulary.character_coverage
    if coverage is None:
        return given.options.vocabulary.limit_alphabet
    text = words.data.tobytes().decode()
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    times = np.repeat(words.counts, np.diff(words.character_offsets()))
    totals = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    np.add.at(totals, codes, times)
    descending = np.sort(totals[totals > 0])[::-1]
    return int(np.searchsorted(np.cumsum(descending), coverage * descending.sum())) + 1
