"""Merge a pair of tokens in all texts: replace it everywhere, and count the new pairs.

Texts share the ids of tokens, but each has its own pairs: in text t, token i is `t * stride + i`.
All new pairs of a merge contain the new token, so they are counted in arrays indexed by the other
token. The work is proportional to the positions visited; a merge never reads a whole word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.pair_counts import Heaps, Pairs, add, allowed, find, note, push
from tokenmill.kernels.word_slots import Integer, Slots, join, stop_of_pair, word_of

NUM_PAIRS, NUM_POSITIONS = 0, 1
"""Indexes into `Scratch.sizes`."""


class Scratch(NamedTuple):
    """Room for one merge, and how full the arrays of pairs are.

    The neighbours of a new token are the tokens before (row 0) and after (row 1) it. Their arrays
    have shape (2, stride) and are indexed by token, except `tokens`.
    """

    counts: Int64Array
    """Occurrences of neighbours in the text."""
    places: Int64Array
    """Positions of neighbours in the unique words."""
    pairs: Int32Array
    """The index of the neighbour's pair with the new token."""
    tokens: Int32Array
    """The list of neighbours seen."""
    slots: Int64Array
    """Where the pair was merged; this and the following arrays fit the longest list."""
    words: Int32Array
    lefts: Int32Array
    """The token before each merged pair, or -1."""
    rights: Int32Array
    """The token after each merged pair, or -1."""
    masses: Int64Array
    """Shape (num_texts,): how often the pair was merged in each text."""
    lengths: Int32Array
    """Shape (num_ids,): the length of each token that `max_length` limits."""
    sizes: Int64Array
    """Shape (2,): the numbers of pairs and positions."""


class Limits(NamedTuple):
    """What stays the same during all merges."""

    num_texts: int
    stride: int
    threshold: int
    """New pairs that occur less often are not recorded."""
    max_length: int


@compiled
def merge_pair(
    slots: Slots,
    pairs: Pairs,
    heaps: Heaps,
    scratch: Scratch,
    merge: tuple[int, int, int],
    limits: Limits,
) -> bool:
    """Merge (left, right) to a new token in all texts.

    Returns whether the new pairs were recorded. If there was no room, count all pairs again.
    """
    fits = True
    for text in range(limits.num_texts):
        shift = text * limits.stride
        left, right, new = merge[0] + shift, merge[1] + shift, merge[2] + shift
        slots.sizes[new] = slots.sizes[left] + slots.sizes[right]
        scratch.lengths[new] = scratch.lengths[left] + scratch.lengths[right]
        scratch.masses[text] = 0
        pair = find(pairs, left, right)
        if pair < 0:
            continue
        number = _merge_places(slots, pairs, pair, scratch, (left, right, new))
        seen = _count_neighbours(slots, number, scratch, new, shift)
        scratch.masses[text] = seen[0]
        if fits:
            merged = (left, right, new)
            fits = _replace_pairs(pairs, heaps, scratch, seen, merged, text, limits)
            if fits:
                _note_positions(slots, pairs, number, scratch, shift)
        pairs.counts[pair] = 0
        for side in range(2):
            for i in range(seen[1 + side]):
                token = scratch.tokens[side, i]
                scratch.counts[side, token] = 0
                scratch.places[side, token] = 0
    return fits


@inlined
def _merge_places(
    slots: Slots,
    pairs: Pairs,
    pair: Integer,
    scratch: Scratch,
    merge: tuple[Integer, Integer, Integer],
) -> int:
    """Merge all occurrences of a pair, from left to right; return their number."""
    left, right, new = merge
    start = pairs.starts[pair]
    number = 0
    for i in range(start, start + pairs.lengths[pair]):
        slot = np.int64(pairs.positions[i])
        if slots.ids[slot] != left:
            continue
        word = word_of(slots, slot)
        if stop_of_pair(slots, slot, word, left, right) < 0:
            continue
        join(slots, slot, left, right, new)
        scratch.slots[number] = slot
        scratch.words[number] = word
        number += 1
    return number


@inlined
def _count_neighbours(
    slots: Slots, number: int, scratch: Scratch, new: Integer, shift: Integer
) -> tuple[Integer, int, int]:
    """Count the tokens before and after each new token.

    Two adjacent new tokens count once, the second as the right neighbour of the first.

    Returns:
        The occurrences of the new token, and the numbers of distinct tokens before and after it.
    """
    mass, num_lefts, num_rights = np.int64(0), 0, 0
    for i in range(number):
        slot = scratch.slots[i]
        word = np.int64(scratch.words[i])
        count = slots.counts[word]
        mass += count
        token = np.int64(-1)
        if slot > slots.offsets[word] and slots.ids[slot - 1] != new:
            token = np.int64(slots.ids[slot - 1] - shift)
            if scratch.places[0, token] == 0:
                scratch.tokens[0, num_lefts] = token
                num_lefts += 1
            scratch.places[0, token] += 1
            scratch.counts[0, token] += count
        scratch.lefts[i] = token
        token = np.int64(-1)
        stop = slot + slots.sizes[new]
        if stop < slots.offsets[word + 1]:
            token = np.int64(slots.ids[stop] - shift)
            if scratch.places[1, token] == 0:
                scratch.tokens[1, num_rights] = token
                num_rights += 1
            scratch.places[1, token] += 1
            scratch.counts[1, token] += count
        scratch.rights[i] = token
    return mass, num_lefts, num_rights


@inlined
def _replace_pairs(
    pairs: Pairs,
    heaps: Heaps,
    scratch: Scratch,
    seen: tuple[Integer, int, int],
    merge: tuple[Integer, Integer, Integer],
    text: int,
    limits: Limits,
) -> bool:
    """Replace the pairs of the merged tokens with their neighbours by pairs with the new token.

    Returns whether there was enough room.
    """
    left, right, new = merge
    sizes, shift = scratch.sizes, text * limits.stride
    for side in range(2):
        for i in range(seen[1 + side]):
            neighbour = np.int64(scratch.tokens[side, i])
            token = neighbour + shift
            count = scratch.counts[side, neighbour]
            # If two new tokens are adjacent, the old pair between them was (right, left).
            before = left if token == new else token
            old = find(pairs, right, before) if side else find(pairs, before, left)
            first, second = (new, token) if side else (token, new)
            if old >= 0:
                pairs.counts[old] -= count
            scratch.pairs[side, neighbour] = -1
            if count < limits.threshold:
                continue
            if not allowed(scratch.lengths, first, second, limits.max_length):
                continue
            pair, start = sizes[NUM_PAIRS], sizes[NUM_POSITIONS]
            places = scratch.places[side, neighbour]
            if pair == len(pairs.keys) or start + places > len(pairs.positions):
                return False
            has_heap = text < len(heaps.sizes)
            if has_heap and heaps.starts[text] + heaps.sizes[text] == heaps.starts[text + 1]:
                return False
            add(pairs, pair, first, second, count, start)
            if has_heap:
                push(heaps, pairs.keys, text, count, pair)
            scratch.pairs[side, neighbour] = pair
            sizes[NUM_PAIRS] += 1
            sizes[NUM_POSITIONS] += places
    return True


@inlined
def _note_positions(
    slots: Slots, pairs: Pairs, number: int, scratch: Scratch, shift: Integer
) -> None:
    """Record the positions of the pairs of the new tokens with their neighbours."""
    for i in range(number):
        token = np.int64(scratch.lefts[i])
        if token >= 0 and scratch.pairs[0, token] >= 0:
            start = scratch.slots[i] - slots.sizes[token + shift]
            note(pairs, np.int64(scratch.pairs[0, token]), start)
        token = np.int64(scratch.rights[i])
        if token >= 0 and scratch.pairs[1, token] >= 0:
            note(pairs, np.int64(scratch.pairs[1, token]), scratch.slots[i])
