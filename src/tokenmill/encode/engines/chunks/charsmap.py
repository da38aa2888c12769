"""What a `Precompiled` normalizer replaces: the keys of SentencePiece's table of characters.

The table begins with the size of a double-array trie in bytes (uint32, little-endian); its units
(uint32) follow. A unit holds the byte that leads to it and how far away its children are
(darts-clone, `darts.h`: `DoubleArrayUnit`).
"""

from __future__ import annotations

import base64
import struct


def has_keys(charsmap: str, start: str) -> bool:
    """Whether a table (base64) replaces any string that begins with `start`."""
    table = base64.b64decode(charsmap)
    (size,) = struct.unpack_from("<I", table)
    units = memoryview(table)[4 : 4 + size].cast("I")
    node = 0
    for byte in start.encode():
        unit = units[node]
        node ^= (unit >> 10) << ((unit & 0x200) >> 6) ^ byte
        if node >= len(units) or units[node] & 0x800000FF != byte:
            return False
    return True
