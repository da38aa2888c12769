"""The loop that learns merges for several languages at once.

There is one text per language, then the development texts if they differ. All texts share the ids
of tokens, but each has its own pairs, with their counts and positions. The key of a pair in text t
has `t * stride + left` instead of `left`, so one table holds all pairs. A last text has no words;
its pairs have the counts of all languages together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.vocabulary.bpe.kernel import (
    Merged,
    Neighbours,
    count_neighbours,
    forget,
    merge_places,
    note_positions,
)
from tokenmill.vocabulary.bpe.pairs import ID_BITS, ID_MASK, Pairs, add, allowed, find, note
from tokenmill.vocabulary.bpe.slots import Integer, Slots
from tokenmill.vocabulary.parity.queues import NONE, Queues, Strings, first_pair, push
from tokenmill.vocabulary.parity.turns import NOBODY, Turns, next_turn

DONE, FULL = 0, 1
"""Why the loop ended: all merges are done or no pairs are left; no room for another merge."""

NUM_MERGES, NUM_PAIRS, NUM_POSITIONS, PENDING = 0, 1, 2, 3
"""Indexes into `Books.sizes`. PENDING: the language of the next merge, after FULL."""
ALL = -2
"""The value of a turn that uses the counts of all languages together."""


class Books(NamedTuple):
    """The merges so far, and how full the arrays are."""

    pairs: Int32Array
    """Shape (max_merges, 2)."""
    masses: Int64Array
    """Shape (max_merges,): occurrences in the texts of languages."""
    turns: Int32Array
    """Shape (max_merges,): the language that each merge was chosen for, or ALL."""
    lengths: Int32Array
    """Shape (stride,): the length of each token."""
    sizes: Int64Array
    """Shape (4,)."""
    wanted: Int64Array
    """Shape (4,): the room that the next merge may need: pairs, positions, positions of one pair,
    and code points."""


class Plan(NamedTuple):
    """The options, and how keys are built."""

    num_symbols: int
    num_languages: int
    num_texts: int
    """The number of languages, plus that of their development texts if they differ."""
    stride: int
    num_merges: int
    num_global: int
    """The number of merges for all languages together, which come first."""
    threshold: int
    max_length: int
    most: float
    """The share of recent turns above which a language is skipped."""


@compiled
def merge_in_turns(
    slots: Slots,
    pairs: Pairs,
    queues: Queues,
    room: tuple[Neighbours, Merged],
    turns: Turns,
    books: Books,
    plan: Plan,
) -> int:
    """Merge until all merges are done, no language has pairs left, or the arrays are full."""
    sizes = books.sizes
    while sizes[NUM_MERGES] < plan.num_merges:
        together = sizes[NUM_MERGES] < plan.num_global
        chosen = sizes[PENDING]
        sizes[PENDING] = NOBODY
        if chosen == NOBODY:
            if turns.exhausted.all():
                return DONE
            chosen = ALL if together else next_turn(turns, plan.most)
        queue = plan.num_languages if chosen == ALL else chosen
        pair = first_pair(queues, pairs.keys, pairs.counts, queue)
        if pair == NONE or pairs.counts[pair] < plan.threshold:
            if chosen == ALL:
                return DONE
            turns.exhausted[chosen] = True
            continue
        left = (pairs.keys[pair] >> ID_BITS) % plan.stride
        right = pairs.keys[pair] & ID_MASK
        if not _has_room(pairs, queues.strings, room[1], left, right, books, plan):
            sizes[PENDING] = chosen
            return FULL
        new = plan.num_symbols + sizes[NUM_MERGES]
        _spell(queues.strings, left, right, new)
        slots.sizes[new] = slots.sizes[left] + slots.sizes[right]
        books.lengths[new] = books.lengths[left] + books.lengths[right]
        merge = (left, right, new)
        before = sizes[NUM_PAIRS]
        mass = _merge_in_texts(slots, pairs, room, turns, books, plan, merge)
        _queue_new(pairs, queues, before, books, plan)
        number = sizes[NUM_MERGES]
        books.pairs[number, 0], books.pairs[number, 1] = left, right
        books.masses[number] = mass
        books.turns[number] = chosen
        sizes[NUM_MERGES] += 1
    return DONE


@compiled
def _has_room(
    pairs: Pairs,
    strings: Strings,
    merged: Merged,
    left: Integer,
    right: Integer,
    books: Books,
    plan: Plan,
) -> bool:
    """Whether there is certainly enough room for a merge; the need is written to `wanted`."""
    places, longest = np.int64(0), np.int64(0)
    for text in range(plan.num_texts):
        pair = find(pairs, text * plan.stride + left, right)
        if pair >= 0:
            places += pairs.lengths[pair]
            longest = max(longest, pairs.lengths[pair])
    # Each position adds at most two pairs to its text, and two to all languages together.
    books.wanted[0] = books.sizes[NUM_PAIRS] + 4 * places
    books.wanted[1] = books.sizes[NUM_POSITIONS] + 2 * places
    books.wanted[2] = longest
    new = plan.num_symbols + books.sizes[NUM_MERGES]
    books.wanted[3] = strings.starts[new]
    for token in (left, right):
        books.wanted[3] += strings.starts[token + 1] - strings.starts[token]
    return bool(
        books.wanted[0] <= len(pairs.keys)
        and books.wanted[1] <= len(pairs.positions)
        and books.wanted[2] <= len(merged.slots)
        and books.wanted[3] <= len(strings.points)
    )


@inlined
def _spell(strings: Strings, left: Integer, right: Integer, new: Integer) -> None:
    place = strings.starts[new]
    for token in (left, right):
        for i in range(strings.starts[token], strings.starts[token + 1]):
            strings.points[place] = strings.points[i]
            place += 1
    strings.starts[new + 1] = place


@inner
def _merge_in_texts(
    slots: Slots,
    pairs: Pairs,
    room: tuple[Neighbours, Merged],
    turns: Turns,
    books: Books,
    plan: Plan,
    merge: tuple[Integer, Integer, Integer],
) -> np.int64:
    """Merge a pair in all texts; return its occurrences in the texts of languages."""
    neighbours, merged = room
    left, right, new = merge
    mass = np.int64(0)
    for text in range(plan.num_texts):
        pair = find(pairs, text * plan.stride + left, right)
        if pair < 0:
            continue
        number = merge_places(slots, pairs, pair, merged, merge)
        found = count_neighbours(slots, number, merged, neighbours, new)
        is_language = text < plan.num_languages
        if is_language:
            mass += found[0]
        if not is_language or plan.num_texts == plan.num_languages:
            turns.lengths[text % plan.num_languages] -= found[0]
        if is_language and books.sizes[NUM_MERGES] < plan.num_global:
            _replace_pairs(pairs, neighbours, found, merge, plan.num_texts, books, plan)
        _replace_pairs(pairs, neighbours, found, merge, text, books, plan)
        pairs.counts[pair] = 0
        note_positions(slots, pairs, number, merged, neighbours)
        forget(neighbours, found)
    if books.sizes[NUM_MERGES] < plan.num_global:
        pairs.counts[find(pairs, plan.num_texts * plan.stride + left, right)] = 0
    return mass


@inner
def _replace_pairs(
    pairs: Pairs,
    neighbours: Neighbours,
    found: tuple[Integer, int, int],
    merge: tuple[Integer, Integer, Integer],
    text: int,
    books: Books,
    plan: Plan,
) -> None:
    """Replace the pairs of the merged tokens with their neighbours by pairs with the new token.

    In the text of all languages together, several languages may add the same pair.
    """
    left, right, new = merge
    sizes, shift = books.sizes, text * plan.stride
    for side in range(2):
        for i in range(found[1 + side]):
            token = np.int64(neighbours.tokens[side, i])
            count = neighbours.counts[side, token]
            if side == 0:
                first, second = np.int64(shift + token), np.int64(new)
                old = find(pairs, shift + token, left)
            else:
                first, second = np.int64(shift + new), token
                # If two new tokens are adjacent, the old pair between them was (right, left).
                old = find(pairs, shift + right, left if token == new else token)
            if old >= 0:
                pairs.counts[old] -= count
            neighbours.pairs[side, token] = NONE
            if not allowed(books.lengths, token, new, plan.max_length):
                continue
            pair = np.int64(NONE) if text < plan.num_texts else find(pairs, first, second)
            if pair >= 0:
                pairs.counts[pair] += count
                continue
            pair = sizes[NUM_PAIRS]
            add(pairs, pair, first, second, count, sizes[NUM_POSITIONS])
            sizes[NUM_PAIRS] += 1
            if text < plan.num_texts:
                neighbours.pairs[side, token] = pair
                sizes[NUM_POSITIONS] += neighbours.places[side, token]


@inner
def _queue_new(pairs: Pairs, queues: Queues, before: Integer, books: Books, plan: Plan) -> None:
    """Queue the pairs from an index on, without those of development texts."""
    for pair in range(before, books.sizes[NUM_PAIRS]):
        text = (pairs.keys[pair] >> ID_BITS) // plan.stride
        if text < plan.num_languages or text == plan.num_texts:
            queue = min(text, np.int64(plan.num_languages))
            push(queues, pairs.keys, queue, pair, pairs.counts[pair])


@compiled
def queue_all(pairs: Pairs, queues: Queues, books: Books, plan: Plan) -> None:
    """Queue all pairs."""
    _queue_new(pairs, queues, 0, books, plan)


@compiled
def note_text(slots: Slots, pairs: Pairs, words: tuple[int, int], shift: int) -> None:
    """Record the positions of the pairs of a text, in words where each token takes one slot."""
    for word in range(words[0], words[1]):
        for i in range(slots.offsets[word], slots.offsets[word + 1] - 1):
            pair = find(pairs, shift + slots.ids[i], slots.ids[i + 1])
            if pair >= 0:
                note(pairs, pair, i)
