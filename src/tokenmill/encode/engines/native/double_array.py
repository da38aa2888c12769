"""Tokens by their bytes: a double-array trie, which finds a child with one read.

A node holds a *base*; its child by a byte is at `base ^ byte`, and holds that byte as its label.
Each base belongs to one node, so the label alone tells whether a node has the child.

Source: J. Aoe, An efficient digital search algorithm by using a double-array structure (1989);
with xor, as darts-clone has it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.compiled import compiled, inner
from tokenmill.errors import EngineError
from tokenmill.records import Int32Array, Int64Array
from tokenmill.words.byte_strings import UInt8Array

NO_TOKEN = -1
_MAX_BASE = 1 << 22
"""Bases and labels share 31 bits."""


def double_array(ids: Mapping[bytes, int]) -> Int32Array:
    """A trie of byte strings that are valid UTF-8; shape (num_slots, 2), node 0 is the root.

    Column 0 is `base << 8 | label`; column 1 the id of the token that ends here, or -1.

    Raises:
        EngineError: there are too many tokens.
    """
    keys = sorted(key for key in ids if key)
    data = np.frombuffer(b"".join(keys), np.uint8)
    offsets = offsets_from_lengths([len(key) for key in keys])
    nodes = _built(data, offsets, np.array([ids[key] for key in keys], np.int32))
    if len(nodes) > _MAX_BASE:
        raise EngineError("the vocabulary is too large for native")
    return nodes


@compiled
def _built(  # noqa: C901
    data: UInt8Array, offsets: Int64Array, ids: Int32Array
) -> Int32Array:
    """Place one node's children after another; ranges of sorted keys share their first bytes."""
    nodes = _free(np.int64(1 << 12))
    taken = np.zeros(len(nodes), np.bool_)
    nodes[0, 0] = 255
    waiting = np.empty((len(ids) + 1, 4), np.int64)
    labels, firsts = np.empty(256, np.int64), np.empty(257, np.int64)
    num_waiting, single, several = 0, 256, 256
    if len(ids):
        num_waiting = 1
        waiting[0, 0], waiting[0, 1], waiting[0, 2], waiting[0, 3] = 0, 0, len(ids), 0
    while num_waiting:
        num_waiting -= 1
        node, first = waiting[num_waiting, 0], waiting[num_waiting, 1]
        last, depth = waiting[num_waiting, 2], waiting[num_waiting, 3]
        if offsets[first + 1] - offsets[first] == depth:
            nodes[node, 1] = ids[first]
            first += 1
        count = 0
        for key in range(first, last):
            label = np.int64(data[offsets[key] + depth])
            if not count or label != labels[count - 1]:
                labels[count], firsts[count] = label, key
                count += 1
        if not count:
            continue
        firsts[count] = last
        slot = (single if count == 1 else several) - 1
        fits = False
        while not fits:
            slot += 1
            if slot + 512 > len(nodes):
                larger = _free(np.int64(2 * len(nodes)))
                larger_taken = np.zeros(len(larger), np.bool_)
                for i in range(len(nodes)):
                    larger[i, 0], larger[i, 1] = nodes[i, 0], nodes[i, 1]
                    larger_taken[i] = taken[i]
                nodes, taken = larger, larger_taken
            fits = nodes[slot, 0] == -1 and not taken[slot ^ labels[0]]
            for i in range(1, count):
                fits = fits and nodes[slot ^ labels[0] ^ labels[i], 0] == -1
        base = slot ^ labels[0]
        taken[base] = True
        nodes[node, 0] = base << 8 | nodes[node, 0] & 0xFF
        for i in range(count):
            child = base ^ labels[i]
            nodes[child, 0] = labels[i]
            waiting[num_waiting, 0], waiting[num_waiting, 1] = child, firsts[i]
            waiting[num_waiting, 2], waiting[num_waiting, 3] = firsts[i + 1], depth + 1
            num_waiting += 1
        if count == 1:
            single = slot  # gaps before it are too few to look for
        else:
            several = slot & ~255
    return nodes


@inner
def _free(size: int | np.int64) -> Int32Array:
    """Nodes whose label is 255, which never occurs in UTF-8."""
    nodes = np.empty((size, 2), np.int32)
    for i in range(size):
        nodes[i, 0] = nodes[i, 1] = -1
    return nodes
