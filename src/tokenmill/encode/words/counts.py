"""The unique words of a corpus and their counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int64Array, UInt8Array


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Unique words sorted by their bytes; the arrays may be memory maps.

    Words are UTF-8, after the normalizer but before any byte-level alphabet: " the", not "Ġthe".
    """

    data: UInt8Array
    """Shape (num_bytes,): all words, concatenated."""
    offsets: Int64Array
    """Shape (num_words + 1,): word i is `data[offsets[i]:offsets[i + 1]]`; no word is empty."""
    counts: Int64Array
    """Shape (num_words,): occurrences, at least 1."""

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, counts: Mapping[bytes, int]) -> WordCounts:
        """Create word counts from a dictionary."""
        words = sorted(counts)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        return cls(
            np.frombuffer(b"".join(words), np.uint8),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            np.fromiter((counts[word] for word in words), np.int64, len(words)),
        )

    def word(self, index: int) -> bytes:
        """Return the bytes of one word."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def select(self, chosen: Int64Array) -> WordCounts:
        """Return the words at the given indices, in that order."""
        starts = self.offsets[chosen]
        lengths = self.offsets[chosen + 1] - starts
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return WordCounts(self.data[places], offsets, self.counts[chosen])

    def character_offsets(self) -> Int64Array:
        """Return offsets of words counted in characters, shape (num_words + 1,)."""
        # A character starts at every byte that is not a continuation byte.
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum((self.data & 0xC0) != 0x80)])
        return np.asarray(starts[self.offsets], np.int64)

    def to_dict(self) -> dict[bytes, int]:
        """Return a dictionary of words and counts."""
        return {self.word(i): int(count) for i, count in enumerate(self.counts)}

    @property
    def num_occurrences(self) -> int:
        """Number of words in the corpus."""
        return int(self.counts.sum())

    @property
    def num_bytes(self) -> int:
        """Number of bytes of all words in the corpus."""
        return int(np.diff(self.offsets) @ self.counts)
