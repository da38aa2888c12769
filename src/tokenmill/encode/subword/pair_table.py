"""A hash table from pairs of ids to numbers, with open addressing, for compiled functions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.compiled import compiled, eight_bytes_at, inlined, inner, int32_at
from tokenmill.records import Int32Array, Int64Array

NOTHING = -1


class PairTable(NamedTuple):
    """The slots of a table: a power of two, at least twice as many as pairs."""

    keys: Int64Array
    """Shape (num_slots,): `left << 32 | right`, or -1 for a free slot."""
    values: Int32Array
    """Shape (num_slots,)."""


def pair_table(lefts: Int32Array, rights: Int32Array, values: Int32Array) -> PairTable:
    """Build a table; all arguments have shape (n,). The last of equal pairs wins.

    Pairs with a negative member are skipped.
    """
    size = 1 << max(2 * len(lefts), 2).bit_length()
    table = PairTable(np.full(size, NOTHING, np.int64), np.full(size, NOTHING, np.int32))
    _fill(table, lefts, rights, values)
    return table


@inlined
def slot_of(table: PairTable, left: int | np.int64, right: int | np.int64) -> np.int64:
    """Return the slot of a pair, or the free slot for it."""
    key = (np.int64(left) << np.int64(32)) | np.int64(right)
    mask = np.int64(len(table.keys) - 1)
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = np.int64(mixed >> np.uint64(32)) & mask
    while table.keys[slot] != key and table.keys[slot] != NOTHING:
        slot = (slot + np.int64(1)) & mask
    return slot


@inner
def value_at(keys: int, values: int, mask: int, left: int | np.int64, right: int | np.int64) -> int:
    """Return the value of a pair, or -1, from a table at two addresses.

    keys, values: the addresses of the table's arrays
    mask: the number of slots minus 1
    """
    key = left << 32 | right
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    slot = int(np.int64(mixed >> np.uint64(32))) & mask
    kept = np.int64(eight_bytes_at(keys + 8 * slot))
    while kept not in (key, NOTHING):
        slot = (slot + 1) & mask
        kept = np.int64(eight_bytes_at(keys + 8 * slot))
    return int32_at(values + 4 * slot)


@compiled
def _fill(table: PairTable, lefts: Int32Array, rights: Int32Array, values: Int32Array) -> None:
    for i in range(len(lefts)):
        if lefts[i] < 0 or rights[i] < 0:
            continue
        slot = slot_of(table, lefts[i], rights[i])
        table.keys[slot] = (np.int64(lefts[i]) << np.int64(32)) | np.int64(rights[i])
        table.values[slot] = values[i]
