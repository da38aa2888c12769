"""A hash table from pairs of ids to numbers, with open addressing, for compiled functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.kernels.memory import eight_bytes_at, int32_at

NOTHING = -1


class PairTable(NamedTuple):
    """The slots of a table: a power of two, at least twice as many as pairs."""

    keys: Int64Array
    """Shape (num_slots,): `left << 32 | right`, or -1 for a free slot."""
    values: Int32Array
    """Shape (num_slots,)."""


NO_PAIRS = PairTable(np.full(1, NOTHING, np.int64), np.full(1, NOTHING, np.int32))


def pair_table(lefts: Int32Array, rights: Int32Array, values: Int32Array) -> PairTable:
    """Build a table; all arguments have shape (n,). The last of equal pairs wins.

    Pairs with a negative member are skipped.
    """
    size = 1 << max(2 * len(lefts), 2).bit_length()
    table = PairTable(np.full(size, NOTHING, np.int64), np.full(size, NOTHING, np.int32))
    _fill(table, lefts, rights, values)
    return table


class PairAddresses(NamedTuple):
    """The addresses of a table's arrays, which are passed on without counting references."""

    keys: int
    values: int
    mask: int
    """One less than the number of slots."""


@inlined
def addresses_of(table: PairTable) -> PairAddresses:
    """Return the addresses of a table's arrays."""
    return PairAddresses(table.keys.ctypes.data, table.values.ctypes.data, len(table.keys) - 1)


@inner
def slot_at(keys: int, mask: int, left: np.int64, right: np.int64) -> int:
    """Return the slot of a pair, or the free slot for it."""
    key = left << np.int64(32) | right
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = int(np.int64(mixed >> np.uint64(32))) & mask
    kept = np.int64(eight_bytes_at(keys + 8 * slot))
    while kept not in (key, NOTHING):
        slot = (slot + 1) & mask
        kept = np.int64(eight_bytes_at(keys + 8 * slot))
    return slot


@inlined
def slot_of(table: PairTable, left: int | np.int64, right: int | np.int64) -> int:
    """Return the slot of a pair, or the free slot for it."""
    mask = len(table.keys) - 1
    return slot_at(table.keys.ctypes.data, mask, np.int64(left), np.int64(right))


@inner
def value_at(table: PairAddresses, left: np.int64, right: np.int64) -> int:
    """Return the value of a pair, or -1."""
    return int32_at(table.values + 4 * slot_at(table.keys, table.mask, left, right))


@compiled
def _fill(table: PairTable, lefts: Int32Array, rights: Int32Array, values: Int32Array) -> None:
    for i in range(len(lefts)):
        if lefts[i] < 0 or rights[i] < 0:
            continue
        slot = slot_of(table, lefts[i], rights[i])
        table.keys[slot] = (np.int64(lefts[i]) << np.int64(32)) | np.int64(rights[i])
        table.values[slot] = values[i]
