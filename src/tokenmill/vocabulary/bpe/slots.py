"""The words that are merged, in fixed slots: nothing moves when tokens are merged.

A token takes as many slots as the tokens that it was made of, and writes its id into its first and
last one. So its neighbours are found in constant time: the token before a slot p ends at p - 1,
and the one after it begins at p + size. Merging never shifts anything, and a word of 400,000 bytes
costs no more than its bytes. For the merge (a, b) -> X of "a b c", then (X, c) -> Y:

    a b c  ->  X X c  ->  Y - Y

Slots inside of a token hold -1, so that a position noted before a merge is seen to be stale.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.compiled import compiled, inlined
from tokenmill.records import Int32Array, Int64Array

Integer = int | np.int64

BLOCK_BITS = 4
"""The word of every 16th slot is kept: its neighbours are one or two words further."""
INSIDE = -1


class Slots(NamedTuple):
    """Words of tokens; word i is `ids[offsets[i]:offsets[i + 1]]`."""

    ids: Int32Array
    """Shape (num_slots,)."""
    sizes: Int32Array
    """Shape (max_tokens,): slots that a token takes, by its id."""
    offsets: Int64Array
    """Shape (num_words + 1,)."""
    counts: Int64Array
    """Shape (num_words,): occurrences of each word."""
    blocks: Int32Array
    """Shape (num_slots / 16, rounded up): the word of every 16th slot."""


@inlined
def word_of(slots: Slots, slot: Integer) -> np.int64:
    """The word that holds a slot."""
    word = np.int64(slots.blocks[slot >> BLOCK_BITS])
    while slots.offsets[word + 1] <= slot:
        word += np.int64(1)
    return word


@inlined
def stop_of_pair(
    slots: Slots, slot: Integer, word: Integer, left: Integer, right: Integer
) -> Integer:
    """The slot after a pair of tokens that begins at a slot; -1 if the pair is not there."""
    second: Integer = slot + slots.sizes[left]
    if second >= slots.offsets[word + 1] or slots.ids[second] != right:
        return -1
    stop: Integer = second + slots.sizes[right]
    return stop


@inlined
def join(slots: Slots, slot: Integer, left: Integer, right: Integer, new: Integer) -> None:
    """Make one token of the pair of tokens that begins at a slot."""
    second = slot + slots.sizes[left]
    slots.ids[second - 1] = INSIDE
    slots.ids[second] = INSIDE
    slots.ids[slot] = new
    slots.ids[second + slots.sizes[right] - 1] = new


@compiled
def repack(slots: Slots, alias: int, token: int) -> tuple[int, int]:
    """Give every token one slot, in place; drop words of one token, in which nothing can merge.

    Tokens with the id `alias` become `token`. Returns the numbers of slots and words that are left.
    """
    num_slots, num_words = 0, 0
    start = slots.offsets[0]
    for word in range(len(slots.counts)):
        place, stop = start, slots.offsets[word + 1]
        start = stop
        if place == stop or place + slots.sizes[slots.ids[place]] == stop:
            continue
        while place < stop:
            found = slots.ids[place]
            place += slots.sizes[found]
            if num_slots & ((1 << BLOCK_BITS) - 1) == 0:
                slots.blocks[num_slots >> BLOCK_BITS] = num_words
            slots.ids[num_slots] = token if found == alias else found
            num_slots += 1
        slots.counts[num_words] = slots.counts[word]
        num_words += 1
        slots.offsets[num_words] = num_slots
    return num_slots, num_words


def packed(slots: Slots, alias: int = INSIDE, token: int = INSIDE) -> Slots:
    """Slots after `repack`, which writes into the same arrays."""
    num_slots, num_words = repack(slots, alias, token)
    slots.offsets[0] = 0
    slots.sizes[:] = 1
    return Slots(
        slots.ids[:num_slots],
        slots.sizes,
        slots.offsets[: num_words + 1],
        slots.counts[:num_words],
        slots.blocks[: -(-num_slots >> BLOCK_BITS)],
    )
