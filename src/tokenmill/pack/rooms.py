"""Which rooms open sequences have: a two-level bitmap that finds the next larger one at once.

Bit r of `words` is set where a sequence has room for exactly r tokens; bit w of `groups` is set
where word w is not zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.compiled import inlined

Bitmap = npt.NDArray[np.uint64]


@inlined
def next_room(words: Bitmap, groups: Bitmap, size: int) -> int:
    """The smallest room of at least `size` that an open sequence has, or -1."""
    word = size >> 6
    bits = words[word] >> np.uint64(size & 63)
    if bits != 0:
        return size + _lowest_bit(bits)
    word += 1
    group = word >> 6
    if group < len(groups):
        bits = groups[group] >> np.uint64(word & 63)
        if bits != 0:
            word += _lowest_bit(bits)
            return (word << 6) + _lowest_bit(words[word])
    for later in range(group + 1, len(groups)):
        if groups[later] != 0:
            word = (later << 6) + _lowest_bit(groups[later])
            return (word << 6) + _lowest_bit(words[word])
    return -1


@inlined
def put(words: Bitmap, groups: Bitmap, room: int) -> None:
    """Set the bit of a room."""
    words[room >> 6] |= np.uint64(1) << np.uint64(room & 63)
    groups[room >> 12] |= np.uint64(1) << np.uint64((room >> 6) & 63)


@inlined
def clear(words: Bitmap, groups: Bitmap, room: int) -> None:
    """Clear the bit of a room."""
    words[room >> 6] &= ~(np.uint64(1) << np.uint64(room & 63))
    if words[room >> 6] == 0:
        groups[room >> 12] &= ~(np.uint64(1) << np.uint64((room >> 6) & 63))


# A de Bruijn sequence: shifted left by i, its six highest bits are different for every i.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_BIT_OF = np.zeros(64, np.int64)
for _i in range(64):
    _BIT_OF[((int(_DE_BRUIJN) << _i) & (2**64 - 1)) >> 58] = _i


@inlined
def _lowest_bit(bits: np.uint64) -> int:
    return int(_BIT_OF[((bits & (~bits + np.uint64(1))) * _DE_BRUIJN) >> np.uint64(58)])
