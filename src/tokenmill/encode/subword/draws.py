"""Random numbers that are a function of a key and a count, and of nothing else.

Draw i of a key is `mixed(key + (i + 1) * golden)`: splitmix64 (Steele, Lea, Flood, 2014) as a
counter. No generator is shared, so batches, workers and numpy's own state have no say.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import inlined
from tokenmill.permutation import UInt64Array, keyed_hash

ONE = 1 << 53
"""A draw is an integer in [0, ONE)."""


def document_keys(seed: int, epoch: int, documents: npt.ArrayLike) -> UInt64Array:
    """Shape (n,): the key of each document number in an epoch of a seed."""
    of_epoch = int(keyed_hash(np.array([epoch], np.uint64), seed)[0])
    return keyed_hash(np.asarray(documents, np.uint64), of_epoch)


def threshold(probability: float) -> np.uint64:
    """Draws below it come with `probability`, to 53 bits."""
    return np.uint64(int(probability * ONE))


@inlined
def draw(key: np.uint64, count: np.uint64) -> np.uint64:
    """Number `count` of a key, in [0, ONE)."""
    value = key + (count + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (value ^ (value >> np.uint64(31))) >> np.uint64(11)
