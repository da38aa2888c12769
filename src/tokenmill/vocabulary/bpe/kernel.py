"""The loop that learns merges: take the most frequent pair, merge it everywhere, count new pairs.

All new pairs of a merge contain the new token, so they are counted in arrays indexed by the other
token. The work is proportional to the positions visited; a merge never reads a whole word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.vocabulary.bpe.heap import Heap, push, remove_first, replace_first
from tokenmill.vocabulary.bpe.pairs import ID_BITS, ID_MASK, Pairs, add, allowed, find, note
from tokenmill.vocabulary.bpe.slots import Integer, Slots, join, stop_of_pair, word_of
from tokenmill.vocabulary.bpe.token_hashes import (
    UNSURE,
    Spelling,
    following,
    is_taken,
    remember,
)

STOPPED, EXHAUSTED, FULL, ASKING = 0, 1, 2, 3
"""Why the loop ended: the requested merges are done; no pair reaches the threshold; no room for
more pairs or positions; a new token may be spelled like an existing one."""

NUM_PAIRS, HEAP_SIZE, NUM_POSITIONS, NUM_TOKENS, NUM_MERGES, ANSWERED = 0, 1, 2, 3, 4, 5
"""Indexes into `Books.sizes`. ANSWERED: whether ASKING was resolved for the first pair."""


class Neighbours(NamedTuple):
    """The tokens before (row 0) and after (row 1) a new token; shape (2, max_tokens) each.

    All arrays are indexed by token id, except `tokens`.
    """

    counts: Int64Array
    """Occurrences in the corpus."""
    places: Int64Array
    """Positions in the unique words."""
    pairs: Int32Array
    """The index of the neighbour's pair with the new token."""
    tokens: Int32Array
    """The list of neighbours seen."""


class Merged(NamedTuple):
    """Where a pair was merged; the arrays fit the longest list of positions."""

    slots: Int64Array
    words: Int32Array
    lefts: Int32Array
    """The token before each merged pair, or -1."""
    rights: Int32Array
    """The token after each merged pair, or -1."""


class Books(NamedTuple):
    """The merges so far, and how full the arrays are."""

    pairs: Int32Array
    """Shape (max_merges, 2)."""
    masses: Int64Array
    """Shape (max_merges,)."""
    lengths: Int32Array
    """Shape (max_tokens,): the length of each token that `max_length` limits."""
    sizes: Int64Array


class Limits(NamedTuple):
    """The limits of merging."""

    num_merges: int
    max_tokens: int
    threshold: int
    max_length: int


@compiled
def merge_pairs(
    slots: Slots,
    pairs: Pairs,
    heap: Heap,
    spelling: Spelling,
    room: tuple[Neighbours, Merged],
    books: Books,
    limits: Limits,
) -> int:
    """Merge until a limit is reached; return why the loop ended.

    After FULL, count pairs again: the last merge was applied, but its new pairs were not recorded.
    """
    sizes = books.sizes
    neighbours, merged = room
    while sizes[NUM_MERGES] < limits.num_merges and sizes[NUM_TOKENS] < limits.max_tokens:
        if sizes[HEAP_SIZE] == 0 or heap.counts[0] < limits.threshold:
            return EXHAUSTED
        pair = np.int64(heap.pairs[0])
        count = pairs.counts[pair]
        if count < limits.threshold:
            sizes[HEAP_SIZE] = remove_first(heap, sizes[HEAP_SIZE], pairs.keys)
            continue
        if count != heap.counts[0]:
            replace_first(heap, sizes[HEAP_SIZE], count, pair, pairs.keys)
            continue
        left, right = pairs.keys[pair] >> ID_BITS, pairs.keys[pair] & ID_MASK
        new = sizes[NUM_TOKENS]
        if not sizes[ANSWERED]:
            value, power = following(spelling, left, right)
            if spelling.beginnings[left] == UNSURE or is_taken(spelling, value):
                return ASKING
            spelling.beginnings[new] = spelling.beginnings[left]
            remember(spelling, new, value, power)
        sizes[ANSWERED] = 0
        sizes[HEAP_SIZE] = remove_first(heap, sizes[HEAP_SIZE], pairs.keys)
        slots.sizes[new] = slots.sizes[left] + slots.sizes[right]
        books.lengths[new] = books.lengths[left] + books.lengths[right]
        number = merge_places(slots, pairs, pair, merged, (left, right, new))
        mass = count_neighbours(slots, number, merged, neighbours, new)
        merge = sizes[NUM_MERGES]
        books.pairs[merge, 0], books.pairs[merge, 1] = left, right
        books.masses[merge] = mass[0]
        sizes[NUM_TOKENS] += 1
        sizes[NUM_MERGES] += 1
        fits = _replace_pairs(pairs, heap, neighbours, mass, (left, right, new), books, limits)
        pairs.counts[pair] = 0
        if fits:
            note_positions(slots, pairs, number, merged, neighbours)
        forget(neighbours, mass)
        if not fits:
            return FULL
    return STOPPED


@inlined
def merge_places(
    slots: Slots,
    pairs: Pairs,
    pair: Integer,
    merged: Merged,
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
        merged.slots[number] = slot
        merged.words[number] = word
        number += 1
    return number


@inlined
def count_neighbours(
    slots: Slots, number: int, merged: Merged, neighbours: Neighbours, new: Integer
) -> tuple[Integer, int, int]:
    """Count the tokens before and after each new token.

    Two adjacent new tokens count once, the second as the right neighbour of the first.

    Returns:
        The occurrences of the new token, and the numbers of distinct tokens before and after it.
    """
    mass, num_lefts, num_rights = np.int64(0), 0, 0
    for i in range(number):
        slot = merged.slots[i]
        word = np.int64(merged.words[i])
        count = slots.counts[word]
        mass += count
        token = np.int32(-1)
        if slot > slots.offsets[word] and slots.ids[slot - 1] != new:
            token = slots.ids[slot - 1]
            if neighbours.places[0, token] == 0:
                neighbours.tokens[0, num_lefts] = token
                num_lefts += 1
            neighbours.places[0, token] += 1
            neighbours.counts[0, token] += count
        merged.lefts[i] = token
        token = np.int32(-1)
        stop = slot + slots.sizes[new]
        if stop < slots.offsets[word + 1]:
            token = slots.ids[stop]
            if neighbours.places[1, token] == 0:
                neighbours.tokens[1, num_rights] = token
                num_rights += 1
            neighbours.places[1, token] += 1
            neighbours.counts[1, token] += count
        merged.rights[i] = token
    return mass, num_lefts, num_rights


@inlined
def _replace_pairs(
    pairs: Pairs,
    heap: Heap,
    neighbours: Neighbours,
    mass: tuple[Integer, int, int],
    merge: tuple[Integer, Integer, Integer],
    books: Books,
    limits: Limits,
) -> bool:
    """Replace the pairs of the merged tokens with their neighbours by pairs with the new token.

    Returns whether there was enough room.
    """
    left, right, new = merge
    sizes = books.sizes
    for side in range(2):
        for i in range(mass[1 + side]):
            token = np.int64(neighbours.tokens[side, i])
            count = neighbours.counts[side, token]
            # If two new tokens are adjacent, the old pair between them was (right, left).
            before = left if token == new else token
            old = find(pairs, right, before) if side else find(pairs, before, left)
            first, second = (new, token) if side else (token, new)
            if old >= 0:
                pairs.counts[old] -= count
            neighbours.pairs[side, token] = -1
            if count < limits.threshold:
                continue
            if not allowed(books.lengths, first, second, limits.max_length):
                continue
            pair, start = sizes[NUM_PAIRS], sizes[NUM_POSITIONS]
            places = neighbours.places[side, token]
            if pair == len(pairs.keys) or start + places > len(pairs.positions):
                return False
            add(pairs, pair, first, second, count, start)
            neighbours.pairs[side, token] = pair
            sizes[HEAP_SIZE] = push(heap, sizes[HEAP_SIZE], count, pair, pairs.keys)
            sizes[NUM_PAIRS] += 1
            sizes[NUM_POSITIONS] += places
    return True


@inlined
def note_positions(
    slots: Slots, pairs: Pairs, number: int, merged: Merged, neighbours: Neighbours
) -> None:
    """Record the positions of the pairs of the new tokens with their neighbours."""
    for i in range(number):
        token = np.int64(merged.lefts[i])
        if token >= 0 and neighbours.pairs[0, token] >= 0:
            start = merged.slots[i] - slots.sizes[token]
            note(pairs, np.int64(neighbours.pairs[0, token]), start)
        token = np.int64(merged.rights[i])
        if token >= 0 and neighbours.pairs[1, token] >= 0:
            note(pairs, np.int64(neighbours.pairs[1, token]), merged.slots[i])


@inlined
def forget(neighbours: Neighbours, mass: tuple[Integer, int, int]) -> None:
    """Reset the counts of neighbours."""
    for side in range(2):
        for i in range(mass[1 + side]):
            token = neighbours.tokens[side, i]
            neighbours.counts[side, token] = 0
            neighbours.places[side, token] = 0
