"""Priority queues of pairs, one per language: largest count first, then the larger strings.

They are pairing heaps (Fredman et al. 1986). The links are arrays over the pairs, so all queues
share the same arrays. Entries are updated lazily, as in `bpe/heap.py`: counts only fall, and a
count that is too high is corrected when its pair reaches the top.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inlined, inner
from tokenmill.vocabulary.bpe.pairs import ID_BITS, ID_MASK
from tokenmill.vocabulary.bpe.slots import Integer

NONE = -1


class Strings(NamedTuple):
    """The strings of tokens: token i is `points[starts[i]:starts[i + 1]]`."""

    points: Int32Array
    """Code points."""
    starts: Int64Array
    """Shape (max_tokens + 1,)."""


class Queues(NamedTuple):
    """The links between pairs, by index of the pair."""

    tops: Int32Array
    """Shape (num_queues,): the first pair of each queue, or NONE."""
    counts: Int64Array
    """The queued count of each pair."""
    children: Int32Array
    siblings: Int32Array
    strings: Strings
    stride: int
    """The left ids in keys, modulo this, are tokens."""


@inlined
def compare(strings: Strings, one: Integer, other: Integer) -> np.int64:
    """Compare the strings of two tokens: positive if the first is larger, negative if smaller."""
    start, second = strings.starts[one], strings.starts[other]
    size, length = strings.starts[one + 1] - start, strings.starts[other + 1] - second
    for i in range(min(size, length)):
        difference = np.int64(strings.points[start + i]) - np.int64(strings.points[second + i])
        if difference != 0:
            return difference
    return np.int64(size - length)


@inner
def precedes(queues: Queues, keys: Int64Array, one: Integer, other: Integer) -> bool:
    """Whether a pair comes before another one in the same queue."""
    if queues.counts[one] != queues.counts[other]:
        return bool(queues.counts[one] > queues.counts[other])
    left, second = keys[one] >> ID_BITS, keys[other] >> ID_BITS
    if left != second:
        return bool(compare(queues.strings, left % queues.stride, second % queues.stride) > 0)
    return bool(compare(queues.strings, keys[one] & ID_MASK, keys[other] & ID_MASK) > 0)


@inlined
def meld(queues: Queues, keys: Int64Array, one: Integer, other: Integer) -> Integer:
    """Merge two heaps; return the pair at the top."""
    if not precedes(queues, keys, one, other):
        one, other = other, one
    queues.siblings[other] = queues.children[one]
    queues.children[one] = other
    return one


@compiled
def push(queues: Queues, keys: Int64Array, queue: Integer, pair: Integer, count: Integer) -> None:
    """Queue a pair."""
    queues.counts[pair] = count
    queues.children[pair] = NONE
    queues.siblings[pair] = NONE
    top = np.int64(queues.tops[queue])
    queues.tops[queue] = pair if top == NONE else meld(queues, keys, top, np.int64(pair))


@inner
def remove_first(queues: Queues, keys: Int64Array, queue: Integer) -> None:
    """Remove the first pair from its queue."""
    rest = np.int64(queues.children[queues.tops[queue]])
    melded = np.int64(NONE)
    while rest != NONE:
        one, other = rest, np.int64(queues.siblings[rest])
        rest = np.int64(NONE)
        if other != NONE:
            rest = np.int64(queues.siblings[other])
            one = np.int64(meld(queues, keys, one, other))
        queues.siblings[one] = melded
        melded = one
    top = np.int64(NONE)
    while melded != NONE:
        following = np.int64(queues.siblings[melded])
        queues.siblings[melded] = NONE
        top = melded if top == NONE else np.int64(meld(queues, keys, top, melded))
        melded = following
    queues.tops[queue] = top


@inner
def first_pair(queues: Queues, keys: Int64Array, counts: Int64Array, queue: Integer) -> np.int64:
    """Return the most frequent pair of a queue, or NONE; it stays in the queue."""
    while queues.tops[queue] != NONE:
        pair = np.int64(queues.tops[queue])
        if counts[pair] == queues.counts[pair]:
            return pair
        remove_first(queues, keys, queue)
        if counts[pair] > 0:
            push(queues, keys, queue, pair, counts[pair])
    return np.int64(NONE)
