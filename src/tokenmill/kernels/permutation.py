"""Keyed permutations of [0, n) that need no memory and can be inverted, and keyed random numbers.

Every shuffle uses them. A balanced Feistel network over the next even number of bits permutes
[0, 2^k). Results outside [0, n) go through the network again until they fall inside ("cycle
walking": J. Black, P. Rogaway: Ciphers with arbitrary finite domains, 2002). The round function is
the finalizer of splitmix64. Only integers are used, so the order is the same on every machine.

Draw i of a key is `mixed(key + (i + 1) * golden)`: splitmix64 (Steele, Lea, Flood, 2014) as a
counter. So the numbers do not depend on batches, workers or the state of numpy.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inlined

ROUNDS = 8
STRETCHES_KEPT = 64

ONE = 1 << 53
"""A draw is an integer in [0, ONE)."""


class Permutation:
    """A pseudorandom permutation of [0, n), determined by `seed` and `epoch`.

    Calling it with positions, shape (m,), returns the number at each position; `places` is the
    inverse. It takes no memory, and the order is the same on every machine.

    Raises:
        ValueError: a position or number is not in [0, n).
    """

    def __init__(self, n: int, seed: int, epoch: int = 0) -> None:
        self.n = n
        bits = max((n - 1).bit_length(), 2)
        self._half = (bits + 1) // 2
        key = keyed_hash(np.array([epoch], np.uint64), seed)[0]
        self._keys = keyed_hash(np.arange(ROUNDS, dtype=np.uint64), int(key))

    def __call__(self, places: npt.ArrayLike) -> Int64Array:
        """Return the number at each of `places`, shape (m,), which are in [0, n)."""
        return self._walked(places, forward=True)

    def places(self, values: npt.ArrayLike) -> Int64Array:
        """Return the position of each of `values`, shape (m,): the inverse permutation."""
        return self._walked(values, forward=False)

    def _walked(self, numbers: npt.ArrayLike, *, forward: bool) -> Int64Array:
        array = np.asarray(numbers, np.int64)
        if len(array) and not (array.min() >= 0 and array.max() < self.n):
            raise ValueError(f"numbers must be in [0, {self.n})")
        return _walk(array, self.n, self._half, self._keys, forward)


def keyed_hash(values: UInt64Array, key: int) -> UInt64Array:
    """Return a 64-bit hash of each value; different keys give unrelated hashes."""
    return _hashes(values, np.uint64(key & (2**64 - 1)))


@inlined
def _mixed(value: np.uint64) -> np.uint64:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@inlined
def unit_interval(value: np.uint64) -> float:
    """Return a number in [0, 1) from the upper 53 bits of a hash."""
    return np.float64(value >> np.uint64(11)) / 9007199254740992.0


@compiled
def _hashes(values: UInt64Array, key: np.uint64) -> UInt64Array:
    result = np.empty(len(values), np.uint64)
    start = _mixed(key + np.uint64(0x9E3779B97F4A7C15))
    for i in range(len(values)):
        result[i] = _mixed(_mixed(values[i] + start) + start)
    return result


@compiled
def _walk(values: Int64Array, n: int, half: int, keys: UInt64Array, forward: bool) -> Int64Array:
    result = np.empty(len(values), np.int64)
    shift = np.uint64(half)
    mask = (np.uint64(1) << shift) - np.uint64(1)
    for i in range(len(values)):
        value = np.uint64(values[i])
        while True:
            left, right = value >> shift, value & mask
            for k in range(len(keys)):
                if forward:
                    left, right = right, left ^ (_mixed(right + keys[k]) & mask)
                else:
                    left, right = right ^ (_mixed(left + keys[len(keys) - 1 - k]) & mask), left
            value = (left << shift) | right
            if value < np.uint64(n):
                break
        result[i] = np.int64(value)
    return result


class BlockPermutation:
    """A permutation of [0, n) that visits a few blocks of consecutive numbers at a time.

    Blocks of `block` consecutive numbers are permuted as wholes. Then the numbers of every
    `at_once` consecutive blocks are permuted among themselves. An epoch thus has
    n / block / at_once stretches, and each stretch reads from few places. If `block` does not
    divide n, one block is shorter; it can be at any position.
    """

    def __init__(self, n: int, block: int, at_once: int, seed: int, epoch: int = 0) -> None:
        self.n = n
        self._block, self._at_once, self._seed, self._epoch = block, at_once, seed, epoch
        num_blocks = -(-n // block)
        self._blocks = Permutation(num_blocks, seed, epoch)
        self._missing = num_blocks * block - n
        self._stretches: dict[int, tuple[int, Permutation]] = {}
        self._short = int(self._blocks.places([num_blocks - 1])[0]) if n else 0

    def __call__(self, places: npt.ArrayLike) -> Int64Array:
        """Return the number at each of `places`, shape (m,), which are in [0, n)."""
        array = np.asarray(places, np.int64)
        if len(array) and not (array.min() >= 0 and array.max() < self.n):
            raise ValueError(f"numbers must be in [0, {self.n})")
        result = np.empty(len(array), np.int64)
        stretches = self._slots(array) // self._at_once
        for stretch in np.unique(stretches).tolist():
            inside = stretches == stretch
            first, permuted = self._stretch(stretch)
            mixed = permuted(array[inside] - first) + first
            slots = self._slots(mixed)
            offsets = mixed - self._starts(slots)
            result[inside] = self._blocks(slots) * self._block + offsets
        return result

    def places(self, values: npt.ArrayLike) -> Int64Array:
        """Return the position of each of `values`, shape (m,): the inverse permutation."""
        array = np.asarray(values, np.int64)
        if len(array) and not (array.min() >= 0 and array.max() < self.n):
            raise ValueError(f"numbers must be in [0, {self.n})")
        blocks, offsets = np.divmod(array, self._block)
        slots = self._blocks.places(blocks)
        mixed = self._starts(slots) + offsets
        result, stretches = np.empty(len(array), np.int64), slots // self._at_once
        for stretch in np.unique(stretches).tolist():
            inside = stretches == stretch
            first, permuted = self._stretch(stretch)
            result[inside] = permuted.places(mixed[inside] - first) + first
        return result

    def _stretch(self, number: int) -> tuple[int, Permutation]:
        """Return the first position of a stretch and its permutation; recent ones are cached."""
        if number not in self._stretches:
            first, stop = self._starts(np.array([number, number + 1]) * self._at_once).tolist()
            key = keyed_hash(np.array([number + 1], np.uint64), self._seed)[0]
            if len(self._stretches) >= STRETCHES_KEPT:
                self._stretches.clear()
            self._stretches[number] = first, Permutation(stop - first, int(key), self._epoch)
        return self._stretches[number]

    def _starts(self, slots: Int64Array) -> Int64Array:
        """Return the position at which the block in each slot starts."""
        starts: Int64Array = slots * self._block - self._missing * (slots > self._short)
        return np.minimum(starts, self.n)

    def _slots(self, places: Int64Array) -> Int64Array:
        """Return the slot of the block that contains each position."""
        behind = places >= (self._short + 1) * self._block - self._missing
        slots: Int64Array = (places + self._missing * behind) // self._block
        return slots


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
