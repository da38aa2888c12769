"""Words during merging, in fixed slots: a merge never moves other tokens.

A token takes as many slots as the two tokens it was merged from, and stores its id in its first and
last slot. So its neighbours are found in constant time: the token before slot p ends at p - 1, and
the token after it begins at p + size. A word of 400,000 bytes costs no more than its bytes. For the
merge (a, b) -> X of "a b c", then (X, c) -> Y:

    a b c  ->  X X c  ->  Y - Y

The other slots of a token hold -1, which reveals stale positions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined

Integer = int | np.int64

BLOCK_BITS = 4
"""The word of every 16th slot is stored; the words of other slots follow soon after it."""
INSIDE = -1


class Slots(NamedTuple):
    """The tokens of words; word i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Int32Array
    """Shape (num_slots,)."""
    sizes: Int32Array
    """Shape (max_tokens,): the number of slots of each token id."""
    offsets: Int64Array
    """Shape (num_words + 1,)."""
    counts: Int64Array
    """Shape (num_words,): occurrences of each word."""
    blocks: Int32Array
    """Shape (num_slots / 16, rounded up): the word of every 16th slot."""


@inlined
def word_of(slots: Slots, slot: Integer) -> np.int64:
    """Return the word that contains a slot."""
    word = np.int64(slots.blocks[slot >> BLOCK_BITS])
    while slots.offsets[word + 1] <= slot:
        word += np.int64(1)
    return word


@inlined
def stop_of_pair(
    slots: Slots, slot: Integer, word: Integer, left: Integer, right: Integer
) -> Integer:
    """Return the slot after a pair of tokens that begins at a slot; -1 if the pair is not there."""
    second: Integer = slot + slots.sizes[left]
    if second >= slots.offsets[word + 1] or slots.ids[second] != right:
        return -1
    stop: Integer = second + slots.sizes[right]
    return stop


@inlined
def join(slots: Slots, slot: Integer, left: Integer, right: Integer, new: Integer) -> None:
    """Merge the pair of tokens that begins at a slot."""
    second = slot + slots.sizes[left]
    slots.ids[second - 1] = INSIDE
    slots.ids[second] = INSIDE
    slots.ids[slot] = new
    slots.ids[second + slots.sizes[right] - 1] = new


@compiled
def _repack(slots: Slots) -> tuple[int, int]:
    """Give every token one slot, in place; drop words of one token, which cannot merge further.

    Returns the numbers of slots and words left.
    """
    num_slots, num_words = 0, 0
    start = slots.offsets[0]
    for word in range(len(slots.counts)):
        place, stop = start, slots.offsets[word + 1]
        start = stop
        if place == stop or place + slots.sizes[slots.ids[place]] == stop:
            continue
        while place < stop:
            if num_slots & ((1 << BLOCK_BITS) - 1) == 0:
                slots.blocks[num_slots >> BLOCK_BITS] = num_words
            slots.ids[num_slots] = slots.ids[place]
            place += slots.sizes[slots.ids[place]]
            num_slots += 1
        slots.counts[num_words] = slots.counts[word]
        num_words += 1
        slots.offsets[num_words] = num_slots
    return num_slots, num_words


def packed(slots: Slots) -> Slots:
    """Return the words of several tokens, each in one slot; overwrites the arrays."""
    num_slots, num_words = _repack(slots)
    slots.offsets[0] = 0
    slots.sizes[:] = 1
    return Slots(
        slots.ids[:num_slots],
        slots.sizes,
        slots.offsets[: num_words + 1],
        slots.counts[:num_words],
        slots.blocks[: -(-num_slots >> BLOCK_BITS)],
    )
