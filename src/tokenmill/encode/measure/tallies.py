"""Sums over documents by group, from which all figures of a report are computed.

All of it is whole numbers, and adding two tallies gives the same in any order.

A confidence interval needs bootstrap samples: as many documents as there are, drawn with
repetition. In a stream each document is taken a number of times that is Poisson-distributed with
mean 1 (A. Chamandy et al.: "Estimating Uncertainty for Massive Data Streams", Google, 2012). Here
that number comes from a hash of the document, so that the samples are the same in any order and for
any number of workers, and documents with one id (translations of one text) are taken together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array

COLUMNS = (
    "documents",
    "bytes",
    "characters",
    "words",
    "tokens",
    "aligned_words",
    "continued_words",
    "unknown_tokens",
    "part_tokens",
    "spelled_documents",
)
"""Documents, and what is in them; `aligned_words` are those whose tokens are known, and
`continued_words` those of them that are cut; `part_tokens` are parts of characters;
`spelled_documents` are those whose tokens hold their bytes, one after another."""
MAX_GROUPS = 1_000

NUM_SAMPLES = 200
DRAWS_PER_HASH = 4
DOCUMENTS_A_STEP = 1 << 10
"""Documents drawn at a time: each takes 3 kB, and a batch can have half a million."""
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_STEPS = np.array(
    [(number * _GOLDEN) & _MASK for number in range(1, NUM_SAMPLES // DRAWS_PER_HASH + 1)],
    np.uint64,
)


@dataclass(slots=True)
class Sums:
    """The sums of COLUMNS over all documents and over bootstrap samples."""

    values: Int64Array = field(
        default_factory=lambda: np.zeros((1 + NUM_SAMPLES, len(COLUMNS)), np.int64)
    )
    """Shape (1 + NUM_SAMPLES, columns)."""

    def __getitem__(self, column: str) -> Int64Array:
        """Shape (1 + NUM_SAMPLES,): one column."""
        return self.values[:, COLUMNS.index(column)]

    def total(self, column: str) -> int:
        """The sum over all documents."""
        return int(self[column][0])

    def without_samples(self) -> Sums:
        """The sums over all documents, without samples."""
        return Sums(self.values[:1])

    @classmethod
    def of(cls, parts: Iterable[Sums]) -> Sums:
        """Several sums together."""
        total = cls()
        for part in parts:
            total.values += part.values
        return total


@dataclass(slots=True)
class Tally:
    """The sums for one tokenizer on some documents."""

    histogram: Int64Array
    """Shape (largest id + 1,): how often each token occurs."""
    pieces: dict[int, Int64Array] = field(default_factory=dict)
    """By sequence length, shape (length + 1,): documents with prefix and EOS, cut at that length,
    counted by the length of their pieces."""
    groups: dict[str, Sums] = field(default_factory=dict)
    used: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    """By group, shape (largest id + 1,): which tokens occur."""
    num_rejected: int = 0
    """Records that could not be read."""

    @classmethod
    def empty(cls, largest_id: int, sequence_lengths: Iterable[int]) -> Tally:
        """A tally of no documents."""
        pieces = {length: np.zeros(length + 1, np.int64) for length in sequence_lengths}
        return cls(np.zeros(largest_id + 1, np.int64), pieces)

    def add_lengths(self, lengths: Int64Array) -> None:
        """Count documents of some lengths, all above 0."""
        for length, pieces in self.pieces.items():
            rests = np.bincount(lengths % length, minlength=length + 1)
            rests[0] = 0
            pieces += rests
            pieces[length] += int((lengths // length).sum())

    def add_documents(
        self,
        group: str,
        hashes: npt.NDArray[np.uint64],
        columns: Int64Array,
        ids: npt.NDArray[Any],
    ) -> None:
        """Add documents of one group, and the ids that occur in them.

        `hashes`, of shape (n,), decide the samples; `columns` has shape (n, columns), by COLUMNS.

        Raises:
            UserError: there are too many groups.
        """
        sums, used = self._of(group)
        sums.values += sampled_sums(hashes, columns)
        used[ids] = True

    def add_totals(self, group: str, columns: Int64Array, ids: npt.NDArray[Any]) -> None:
        """Add sums without known documents. They are in no sample and have no interval.

        `columns` has shape (columns,), by COLUMNS.

        Raises:
            UserError: there are too many groups.
        """
        sums, used = self._of(group)
        sums.values[0] += columns
        used[ids] = True

    def add(self, other: Tally) -> None:
        """Add the documents of another tally of the same tokenizer and sequence lengths.

        Raises:
            UserError: there are too many groups.
        """
        self.num_rejected += other.num_rejected
        self.histogram += other.histogram
        for length, pieces in other.pieces.items():
            self.pieces[length] += pieces
        for group in other.groups:
            sums, used = self._of(group)
            sums.values += other.groups[group].values
            used |= other.used[group]

    def arrays(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Everything as named arrays, in a fixed order; `of_arrays` reads them."""
        yield "histogram", self.histogram
        yield "num_rejected", np.array([self.num_rejected], np.int64)
        for length, pieces in sorted(self.pieces.items()):
            yield f"pieces.{length}", pieces
        for number, group in enumerate(sorted(self.groups)):
            yield f"name.{number}", np.frombuffer(group.encode("utf-8", "surrogatepass"), np.uint8)
            yield f"sums.{number}", self.groups[group].values
            yield f"used.{number}", np.packbits(self.used[group])

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Tally:
        """Return the tally for the result of `arrays`."""
        tally = cls(arrays["histogram"], num_rejected=int(arrays["num_rejected"][0]))
        for name, array in arrays.items():
            kind, _, number = name.partition(".")
            if kind == "pieces":
                tally.pieces[int(number)] = array
            elif kind == "name":
                group = array.tobytes().decode("utf-8", "surrogatepass")
                used = np.unpackbits(arrays[f"used.{number}"], count=len(tally.histogram))
                tally.groups[group] = Sums(arrays[f"sums.{number}"])
                tally.used[group] = used.astype(np.bool_)
        return tally

    def _of(self, group: str) -> tuple[Sums, npt.NDArray[np.bool_]]:
        if group not in self.groups:
            if len(self.groups) == MAX_GROUPS:
                raise UserError(
                    f"more than {MAX_GROUPS:,} groups",
                    where=f"a further one is {group[:80]!r}",
                    hint="group by a column with fewer values, such as the language",
                )
            self.groups[group] = Sums()
            self.used[group] = np.zeros(len(self.histogram), np.bool_)
        return self.groups[group], self.used[group]


def _times_by_draw() -> npt.NDArray[np.uint8]:
    """The Poisson quantile of each 16-bit draw, shape (65,536,)."""
    edges, total, term = [], 0.0, math.exp(-1)
    for times in range(1, 12):
        total += term
        edges.append(round(total * 65_536))
        term /= times
    return np.searchsorted(edges, np.arange(65_536), side="right").astype(np.uint8)


_TIMES = _times_by_draw()


def times_drawn(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """How often each document is in each sample, shape (n, 1 + NUM_SAMPLES); once in the first."""
    with np.errstate(over="ignore"):
        x = hashes[:, None] + _STEPS[None, :]
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    drawn = _TIMES[x.astype("<u8").view("<u2")]
    return np.concatenate([np.ones((len(hashes), 1), np.uint8), drawn], axis=1)


def sampled_sums(hashes: npt.NDArray[np.uint64], values: Int64Array) -> Int64Array:
    """The sums of each column of `values` over each sample, shape (1 + NUM_SAMPLES, columns).

    `values` has shape (n, columns). Exact: all parts of a sum are whole numbers below 2^53.
    """
    sums = np.zeros((1 + NUM_SAMPLES, values.shape[1]), np.int64)
    for start in range(0, len(hashes), DOCUMENTS_A_STEP):
        part = slice(start, start + DOCUMENTS_A_STEP)
        times = times_drawn(hashes[part]).T.astype(np.float64)
        sums += np.rint(times @ values[part].astype(np.float64)).astype(np.int64)
    return sums
