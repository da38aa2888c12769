"""How many documents there are of each length."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.html import Html
from tokenmill.core.pictures import histogram
from tokenmill.core.records import Advance, Int64Array
from tokenmill.store.dataset import Dataset

PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class Bin:
    """Documents of some lengths."""

    low: int
    high: int
    """The longest length that belongs to the bin, in tokens."""
    documents: int
    tokens: int

    def __str__(self) -> str:
        return f"{self.low:,}" if self.low == self.high else f"{self.low:,} to {self.high:,}"


def length_picture(bins: Sequence[Bin]) -> Html:
    """A small picture of the documents in each bin."""
    first, last = f"{bins[0].low:,}", f"{bins[-1].high + 1:,} tokens"
    return histogram([each.documents for each in bins], first, last, "lengths of documents")


@dataclass(frozen=True, slots=True)
class LengthCounts:
    """Document lengths in tokens, including prefix and EOS, and how often each occurs."""

    lengths: Int64Array
    """Shape (n,): rising, each once."""
    counts: Int64Array
    """Shape (n,): documents of each length."""

    @staticmethod
    def of(parts: Iterable[Int64Array]) -> LengthCounts:
        """Counts of lengths that come in parts; memory grows with how many lengths differ."""
        found = LengthCounts(np.zeros(0, np.int64), np.zeros(0, np.int64))
        for lengths in parts:
            new, counts = np.unique(lengths, return_counts=True)
            both = np.concatenate([found.lengths, new])
            found = LengthCounts.weighted(both, np.concatenate([found.counts, counts]))
        return found

    @staticmethod
    def weighted(lengths: Int64Array, counts: Int64Array) -> LengthCounts:
        """Counts of lengths in any order, which may repeat."""
        unique, place = np.unique(lengths, return_inverse=True)
        sums = np.zeros(len(unique), np.int64)
        np.add.at(sums, place, counts)
        return LengthCounts(unique.astype(np.int64), sums)

    @property
    def num_documents(self) -> int:
        """All documents."""
        return int(self.counts.sum())

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.lengths @ self.counts)

    def percentile(self, share: float) -> int:
        """Return the shortest length that `share` percent of the documents do not exceed."""
        return self._reached(self.counts, share)

    def token_percentile(self, share: float) -> int:
        """The shortest length so that documents up to it hold that many of 100 tokens."""
        return self._reached(self.counts * self.lengths, share)

    def pieces(self, length: int) -> Int64Array:
        """Shape (length + 1,): pieces of each size, if documents are cut after every `length`."""
        histogram = np.zeros(length + 1, np.int64)
        histogram[length] = int((self.lengths // length) @ self.counts)
        np.add.at(histogram, self.lengths % length, self.counts)
        histogram[0] = 0
        return histogram

    def bins(self, per_octave: int = 1) -> list[Bin]:
        """Bins of documents from 1, 2, 4, 8, ... tokens on: all between two non-empty ones.

        `per_octave` cuts each of them into parts of about equal width on a logarithmic axis.
        """
        octaves = np.arange(int(self.lengths[-1]).bit_length() * per_octave + 1)
        edges = np.unique(np.rint(2.0 ** (octaves / per_octave)).astype(np.int64)).tolist()
        places = np.searchsorted(self.lengths, edges).tolist()
        found = []
        for (low, first), (above, last) in itertools.pairwise(zip(edges, places, strict=True)):
            counts, lengths = self.counts[first:last], self.lengths[first:last]
            found.append(Bin(low, above - 1, int(counts.sum()), int(counts @ lengths)))
        filled = np.flatnonzero([each.documents for each in found])
        return found[filled[0] : filled[-1] + 1]

    def _reached(self, weights: Int64Array, share: float) -> int:
        sums = np.cumsum(weights)
        place = int(np.searchsorted(sums, share / 100 * sums[-1]))
        return int(self.lengths[min(place, len(sums) - 1)])


def lengths_of_dataset(dataset: Dataset, advance: Advance) -> LengthCounts:
    """The lengths of all documents of a dataset, from its index; tokens are not read.

    Raises:
        VerificationError: an index is damaged.
    """

    def parts() -> Iterable[Int64Array]:
        done = 0
        for shard in dataset.shards:
            yield shard.selected_lengths()
            shard.release()
            done += shard.entry.documents
            advance("lengths", done, len(dataset.document_numbers))

    dataset.announce_pass()
    return LengthCounts.of(parts())
