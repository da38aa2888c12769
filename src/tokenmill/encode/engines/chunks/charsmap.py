"""Read SentencePiece's table of character replacements (`precompiled_charsmap`).

The table begins with the size of a double-array trie in bytes (uint32, little-endian). The trie's
units (uint32) follow, then zero-terminated texts. A unit holds the byte that leads to it and the
offset of its children (darts-clone, `darts.h`: `DoubleArrayUnit`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import UInt32Array

LABEL, FAR = 0x800000FF, 0x200
"""Bit masks of a unit: its label, and the flag for a large offset."""


class Charsmap(NamedTuple):
    """The keys of a table, as the units of a double-array trie."""

    units: UInt32Array

    def begins_key(self, characters: list[str]) -> list[bool]:
        """Return for each character whether a key begins with it."""
        spelled = [character.encode() for character in characters]
        lengths = np.array([len(key) for key in spelled])
        nodes, found = np.zeros(len(spelled), np.int64), np.ones(len(spelled), np.bool_)
        padded = np.frombuffer(b"".join(key.ljust(4, b"\0") for key in spelled), np.uint8)
        for depth, labels in enumerate(padded.reshape(-1, 4).T.astype(np.int64)):
            units = self.units[nodes].astype(np.int64)
            children = nodes ^ (units >> 10 << ((units & FAR) >> 6)) ^ labels
            inside = children < len(self.units)
            children = np.where(inside, children, 0)
            is_child = inside & (self.units[children].astype(np.int64) & LABEL == labels)
            still = depth < lengths
            found &= is_child | ~still
            nodes = np.where(still, children, nodes)
        return found.tolist()


def read_charsmap(table: bytes) -> Charsmap:
    """Read a table.

    Raises:
        ValueError: the table is damaged.
    """
    if len(table) < 8 or not 4 <= (size := struct.unpack_from("<I", table)[0]) <= len(table) - 4:
        raise ValueError("the precompiled_charsmap is truncated")
    return Charsmap(np.frombuffer(table, "<u4", size // 4, 4).astype(np.uint32))
