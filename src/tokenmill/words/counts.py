"""The unique words of a corpus, and how often each of them occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.records import Int64Array

UInt8Array = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class WordCounts:
    """Unique words in the order of their bytes; the arrays may be mapped files.

    A word is UTF-8 after the normalizer, before any byte-level alphabet: " the", not "Ġthe".
    """

    data: UInt8Array
    """Shape (num_bytes,): all words, one after another."""
    offsets: Int64Array
    """Shape (num_words + 1,): word i is `data[offsets[i]:offsets[i + 1]]`; none is empty."""
    counts: Int64Array
    """Shape (num_words,): occurrences, at least 1."""

    def __len__(self) -> int:
        return len(self.counts)

    @classmethod
    def of(cls, counts: Mapping[bytes, int]) -> WordCounts:
        """Words from a dictionary."""
        words = sorted(counts)
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        return cls(
            np.frombuffer(b"".join(words), np.uint8),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
            np.fromiter((counts[word] for word in words), np.int64, len(words)),
        )

    def word(self, index: int) -> bytes:
        """The bytes of one word."""
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes()

    def select(self, chosen: Int64Array) -> WordCounts:
        """Some words by their indices, in that order."""
        starts = self.offsets[chosen]
        lengths = self.offsets[chosen + 1] - starts
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return WordCounts(self.data[places], offsets, self.counts[chosen])

    def character_offsets(self) -> Int64Array:
        """Shape (num_words + 1,): where each word begins among the characters of all."""
        # A character begins wherever a byte continues none.
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum((self.data & 0xC0) != 0x80)])
        return np.asarray(starts[self.offsets], np.int64)

    def to_dict(self) -> dict[bytes, int]:
        """All words with their counts."""
        return {self.word(i): int(count) for i, count in enumerate(self.counts)}

    @property
    def num_occurrences(self) -> int:
        """Words of the corpus."""
        return int(self.counts.sum())

    @property
    def num_bytes(self) -> int:
        """Bytes of all words of the corpus."""
        return int(np.diff(self.offsets) @ self.counts)
