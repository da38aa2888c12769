"""SentencePiece's table of characters: which are replaced.

The table begins with the size of a double-array trie in bytes (uint32, little-endian); its units
(uint32) follow, then texts that each end in a zero byte. A unit holds the byte that leads to it and
how far away its children are (darts-clone, `darts.h`: `DoubleArrayUnit`).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from tokenmill.records import UInt32Array

LABEL, FAR = 0x800000FF, 0x200
"""Parts of a unit."""


class Charsmap(NamedTuple):
    """The keys of a table."""

    units: UInt32Array

    def begins_key(self, characters: list[str]) -> list[bool]:
        """Whether keys begin with each of some characters."""
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
    """A table's arrays.

    Raises:
        ValueError: it is damaged.
    """
    if len(table) < 8 or not 4 <= (size := struct.unpack_from("<I", table)[0]) <= len(table) - 4:
        raise ValueError("a table of characters that is cut off")
    return Charsmap(np.frombuffer(table, "<u4", size // 4, 4).astype(np.uint32))
