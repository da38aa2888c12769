"""Counter-based random numbers: each depends only on a key and a counter.

Draw i of a key is `mixed(key + (i + 1) * golden)`: splitmix64 (Steele, Lea, Flood, 2014) as a
counter. So the numbers do not depend on batches, workers or the state of numpy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.kernels.compiled import inlined
from tokenmill.kernels.permutation import UInt64Array, keyed_hash

ONE = 1 << 53
"""A draw is an integer in [0, ONE)."""


def document_keys(seed: int, epoch: int, documents: npt.ArrayLike) -> UInt64Array:
    """Return the key of each document for a seed and an epoch, shape (n,)."""
    of_epoch = int(keyed_hash(np.array([epoch], np.uint64), seed)[0])
    return keyed_hash(np.asarray(documents, np.uint64), of_epoch)


def threshold(probability: float) -> np.uint64:
    """Return the number below which a draw falls with this probability."""
    return np.uint64(int(probability * ONE))


@inlined
def draw(key: np.uint64, count: np.uint64) -> np.uint64:
    """Return draw `count` of a key, in [0, ONE)."""
    value = key + (count + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (value ^ (value >> np.uint64(31))) >> np.uint64(11)
