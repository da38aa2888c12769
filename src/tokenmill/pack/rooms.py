"""A two-level bitmap of the rooms of open sequences, to find the next larger one quickly.

Bit r of `words` is set if a sequence has room for exactly r tokens. Bit w of `groups` is set if
word w is not zero.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.kernels.compiled import inlined, trailing_zeros

Bitmap = npt.NDArray[np.uint64]


@inlined
def next_room(words: Bitmap, groups: Bitmap, size: int) -> int:
    """Return the smallest room of an open sequence that is at least `size`, or -1."""
    word = size >> 6
    bits = words[word] >> np.uint64(size & 63)
    if bits != 0:
        return size + trailing_zeros(bits)
    word += 1
    group = word >> 6
    if group < len(groups):
        bits = groups[group] >> np.uint64(word & 63)
        if bits != 0:
            word += trailing_zeros(bits)
            return (word << 6) + trailing_zeros(words[word])
    for later in range(group + 1, len(groups)):
        if groups[later] != 0:
            word = (later << 6) + trailing_zeros(groups[later])
            return (word << 6) + trailing_zeros(words[word])
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
