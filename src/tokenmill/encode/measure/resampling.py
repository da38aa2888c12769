"""Bootstrap samples of documents for confidence intervals; they depend only on the documents.

A bootstrap draws as many documents as there are, with repetition. In a stream each document is
taken a number of times that is Poisson-distributed with mean 1 (A. Chamandy et al.: "Estimating
Uncertainty for Massive Data Streams", Google, 2012). Here that number comes from a hash of the
document, so that the samples are the same in any order and for any number of workers, and documents
with one id (translations of one text) are taken together.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array

NUM_SAMPLES = 200
DRAWS_PER_HASH = 4
DOCUMENTS_A_STEP = 1 << 10
"""Documents drawn at a time: each takes 3 kB, and a batch can have half a million."""
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def _times_by_draw() -> npt.NDArray[np.uint8]:
    """The Poisson quantile of each 16-bit draw, shape (65,536,)."""
    edges, total, term = [], 0.0, math.exp(-1)
    for times in range(1, 12):
        total += term
        edges.append(round(total * 65_536))
        term /= times
    return np.searchsorted(edges, np.arange(65_536), side="right").astype(np.uint8)


_TIMES = _times_by_draw()
_STEPS = np.array(
    [(number * _GOLDEN) & _MASK for number in range(1, NUM_SAMPLES // DRAWS_PER_HASH + 1)],
    np.uint64,
)


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
