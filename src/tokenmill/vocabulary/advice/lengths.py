"""Measure the number of tokens in a corpus for every vocabulary size.

The first merges of a large vocabulary are the merges of a smaller one, and each application of a
merge removes one token. So a single training gives the exact length at every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.words.counts import WordCounts
from tokenmill.store.counts.folder import open_counts
from tokenmill.vocabulary.bpe.learning import learn_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions
from tokenmill.vocabulary.bpe.symbols import Alphabet, byte_symbols, character_symbols


@dataclass(frozen=True, slots=True)
class LengthCurve:
    """The number of tokens in a corpus for every vocabulary size."""

    smallest_size: int
    """The size before the first merge: symbols and special tokens."""
    tokens: Int64Array
    """Shape (num_merges + 1,): the length of the corpus at `smallest_size`, plus 1, and so on."""
    num_characters: int
    num_bytes: int
    left_out_bytes: int = 0
    """Bytes of rare words that were left out when the corpus was counted."""

    @property
    def largest_size(self) -> int:
        """The size after the last merge."""
        return self.smallest_size + len(self.tokens) - 1

    def at(self, size: int) -> int | None:
        """Return the number of tokens at a size; None if it was not measured."""
        if not self.smallest_size <= size <= self.largest_size:
            return None
        return int(self.tokens[size - self.smallest_size])

    def size_of_least_flops(self, parameters: int, hidden_size: int) -> int | None:
        """Return the size at which the corpus takes the fewest FLOPs; None if beyond the curve.

        FLOPs are proportional to (parameters + size x hidden_size) x tokens, without attention.
        """
        sizes = np.arange(self.smallest_size, self.largest_size + 1, dtype=np.float64)
        best = int(np.argmin((parameters + sizes * hidden_size) * self.tokens))
        return None if best == len(self.tokens) - 1 else self.smallest_size + best


def measure_lengths(
    words: WordCounts, *, byte_level: bool, largest_size: int, advance: Advance | None = None
) -> LengthCurve:
    """Learn byte-pair merges up to a size, and record the length of the corpus at each size.

    Special tokens are ignored: there are few, and texts do not contain them.
    """
    symbols = byte_symbols() if byte_level else character_symbols(words, Alphabet())
    options = MergeOptions(vocabulary_size=max(largest_size, len(symbols)))
    merges = learn_merges(words, symbols, options, advance)
    lengths = merges.corpus_lengths()
    return LengthCurve(len(symbols), lengths, count_characters(words), words.num_bytes)


def lengths_of_counts(
    folder: str | Path,
    weights: Mapping[str, int] | None,
    largest_size: int,
    advance: Advance | None = None,
) -> LengthCurve:
    """Measure the corpus of a folder of word counts; `weights` counts groups more than once.

    Raises:
        UserError: the counts do not exist.
        VerificationError: the counts are damaged.
    """
    counts = open_counts(folder)
    words, byte_level = counts.total(weights), counts.split.byte_level
    curve = measure_lengths(
        words, byte_level=byte_level, largest_size=largest_size, advance=advance
    )
    return replace(curve, left_out_bytes=counts.left_out.bytes)


def count_characters(words: WordCounts) -> int:
    """Count the characters of the corpus: all bytes except continuation bytes."""
    continues = (words.data & 0xC0) == 0x80
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(continues, dtype=np.int64)])
    continued = bounds[words.offsets[1:]] - bounds[words.offsets[:-1]]
    return int((np.diff(words.offsets) - continued) @ words.counts)
