"""Detect new tokens that may be spelled like existing ones, with hashes of their strings.

The hash of a string s is the sum of (s[i] + 1) * BASE^(len(s) - 1 - i) modulo 2^64, so the hash of
a token follows from its parts. If hashes are equal, the caller compares the strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Int64Array, UInt8Array, UInt64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.pair_table import NOTHING, PairTable, slot_of
from tokenmill.vocabulary.bpe.slots import Integer

BASE = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1
PLAIN, AFFIXED, UNSURE = 0, 1, 2
"""Whether a token begins with the continuation prefix. UNSURE: it is a part of the prefix."""


class Spelling(NamedTuple):
    """The hashes of the strings of tokens."""

    hashes: UInt64Array
    """Shape (max_tokens,)."""
    powers: UInt64Array
    """Shape (max_tokens,): BASE to the power of the length of a token."""
    beginnings: npt.NDArray[np.int8]
    """Shape (max_tokens,): PLAIN, AFFIXED or UNSURE."""
    prefix: UInt64Array
    """Shape (2,): the hash of the prefix, and the inverse of its power."""
    taken: PairTable
    """The hashes of all tokens."""


@inlined
def following(spelling: Spelling, left: Integer, right: Integer) -> tuple[np.uint64, np.uint64]:
    """Return the hash and the power of a merged pair."""
    power = spelling.powers[right]
    own = spelling.hashes[right]
    if spelling.beginnings[right] == AFFIXED:
        power = power * spelling.prefix[1]
        own = own - spelling.prefix[0] * power
    return spelling.hashes[left] * power + own, spelling.powers[left] * power


@inlined
def slot_of_hash(taken: PairTable, value: np.uint64) -> int:
    """Return the slot of a hash (63 bits of it), or the free slot for it."""
    return slot_of(taken, np.int64(value >> np.uint64(33)), np.int64(value & np.uint64(0xFFFFFFFF)))


@inlined
def remember(spelling: Spelling, token: Integer, value: np.uint64, power: np.uint64) -> None:
    """Record the hash of a new token."""
    spelling.hashes[token] = value
    spelling.powers[token] = power
    slot = slot_of_hash(spelling.taken, value)
    high = np.int64(value >> np.uint64(33))
    spelling.taken.keys[slot] = (high << np.int64(32)) | np.int64(value & np.uint64(0xFFFFFFFF))
    spelling.taken.values[slot] = token


@inlined
def is_taken(spelling: Spelling, value: np.uint64) -> bool:
    """Whether a token has that hash."""
    return bool(spelling.taken.keys[slot_of_hash(spelling.taken, value)] != NOTHING)


@compiled
def remember_all(spelling: Spelling, data: UInt8Array, offsets: Int64Array, first: int) -> None:
    """Record the strings `data[offsets[i]:offsets[i + 1]]` for the tokens from `first` on."""
    for i in range(len(offsets) - 1):
        value, power = np.uint64(0), np.uint64(1)
        for place in range(offsets[i], offsets[i + 1]):
            value = value * np.uint64(BASE) + np.uint64(data[place]) + np.uint64(1)
            power = power * np.uint64(BASE)
        remember(spelling, first + i, value, power)


def new_spelling(max_tokens: int, prefix: str) -> Spelling:
    """Return an empty table with room for `max_tokens` strings."""
    value, power = 0, 1
    for byte in prefix.encode():
        value, power = (value * BASE + byte + 1) & WORD, (power * BASE) & WORD
    num_slots = 1 << max(2 * max_tokens, 2).bit_length()
    return Spelling(
        np.zeros(max_tokens, np.uint64),
        np.ones(max_tokens, np.uint64),
        np.zeros(max_tokens, np.int8),
        np.array([value, pow(power, -1, 1 << 64)], np.uint64),
        PairTable(np.full(num_slots, NOTHING, np.int64), np.full(num_slots, NOTHING, np.int32)),
    )


def add_strings(spelling: Spelling, strings: Sequence[str], first: int, prefix: str) -> None:
    """Record the strings of the tokens from id `first` on."""
    encoded = [string.encode() for string in strings]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    remember_all(spelling, np.frombuffer(b"".join(encoded), np.uint8), offsets, first)
    if prefix:
        kinds = [_beginning(string, prefix) for string in strings]
        spelling.beginnings[first : first + len(strings)] = kinds


def _beginning(string: str, prefix: str) -> int:
    if string.startswith(prefix):
        return AFFIXED
    return UNSURE if prefix.startswith(string) else PLAIN
