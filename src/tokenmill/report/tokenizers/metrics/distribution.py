"""How evenly a vocabulary is used: entropies, and the shares of frequent and rare tokens.

Each function takes `counts` of shape (n,): how often each token occurs, in any order; zeros are
tokens of the vocabulary that never occur.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array

RENYI_ORDER = 2.5
"""The order that correlated best with translation quality in the paper; its code defaults to 3.0,
and the figures in its README, labelled 2.5, are of 3.0."""


def probabilities(counts: Int64Array) -> npt.NDArray[np.float64]:
    """Shares of the tokens that occur, the most frequent first."""
    found = np.sort(counts[counts > 0])[::-1]
    return found / max(int(found.sum()), 1)


def renyi_entropy(counts: Int64Array, order: float = RENYI_ORDER) -> float:
    """Rényi entropy in bits, of Shannon's where `order` is 1; 0 without tokens.

    V. Zouhar et al.: "Tokenization and the Noiseless Channel" (https://arxiv.org/abs/2306.16842).
    """
    shares = probabilities(counts)
    if not len(shares):
        return 0.0
    if order == 1:
        return -float(np.sum(shares * np.log2(shares))) + 0.0
    return float(np.log2(np.sum(shares**order)) / (1 - order)) + 0.0


def efficiency(entropy: float, num_types: int) -> float:
    """Entropy as a share of the maximum for `num_types` types; 0 for fewer than two."""
    return entropy / math.log2(num_types) if num_types > 1 else 0.0


def code_bits(counts: Int64Array) -> float:
    """Size of the tokens in bits, if each takes log2 of the number of types that occur.

    The scorer of Zouhar et al. prints it as `bits`, with a negative sign.
    """
    num_types = int(np.count_nonzero(counts))
    return int(counts.sum()) * math.log2(num_types) if num_types else 0.0


def percentile_frequency(counts: Int64Array, start: float = 0.03, stop: float = 0.83) -> float:
    """Share of the types of middle rank among all tokens: without the most frequent 3 percent of
    the types and the rarest 17.

    T. Gowda and J. May (https://arxiv.org/abs/2004.02334), with the bounds and the rounding of the
    scorer of Zouhar et al.
    """
    shares = probabilities(counts)
    if not len(shares):
        return 0.0
    last = len(shares) - 1
    first, end = min(int(len(shares) * start), last), min(int(len(shares) * stop), last)
    if first == end:
        first = max(0, first - 1)
    if first == end:
        end = min(last, end + 1)
    return float(np.sum(shares[first:end]))


@dataclass(frozen=True, slots=True)
class RankPoint:
    """A point of the curve of frequency against rank."""

    rank: int
    """1 is the most frequent token."""
    count: int
    share: float
    """Of all tokens, that this one and the more frequent ones take."""


def rank_frequency(counts: Int64Array) -> list[RankPoint]:
    """The curve at ranks 1, 2, 5, 10, 20, 50 ... and at the last token that occurs."""
    found = np.sort(counts[counts > 0])[::-1]
    if not len(found):
        return []
    sums, total = np.cumsum(found), int(found.sum())
    wanted = [step * 10**power for power in range(19) for step in (1, 2, 5)]
    ranks = [rank for rank in wanted if rank < len(found)] + [len(found)]
    return [RankPoint(r, int(found[r - 1]), int(sums[r - 1]) / total) for r in ranks]
