"""A double-array trie over the bytes of tokens, which finds a child with one read.

A node holds a *base*; its child for a byte is at `base ^ byte`, and holds that byte as its label.
Each base belongs to one node, so the label alone says whether a node has the child.

Source: J. Aoe, An efficient digital search algorithm by using a double-array structure (1989);
with xor, like darts-clone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.compiled import compiled, inlined
from tokenmill.errors import EngineError
from tokenmill.records import Int32Array, Int64Array
from tokenmill.words.byte_strings import UInt8Array

BoolArray = npt.NDArray[np.bool_]

NO_TOKEN = -1
MAX_NODES = 1 << 22
"""Limited because bases and labels share 31 bits."""
_BLOCK = 256
"""All children of a node are in one block of this many slots."""
_FREE = 255
"""The label of free slots; this byte never occurs in UTF-8."""


def double_array(ids: Mapping[bytes, int], max_nodes: int = MAX_NODES) -> Int32Array:
    """Build a trie of byte strings that are valid UTF-8.

    Returns:
        Shape (num_slots, 2); node 0 is the root. Column 0 is `base << 8 | label`, column 1 the id
        of the token that ends here, or -1.

    Raises:
        EngineError: the trie needs more than `max_nodes` slots.
    """
    keys = sorted(key for key in ids if key)
    data = np.frombuffer(b"".join(keys), np.uint8)
    offsets = offsets_from_lengths([len(key) for key in keys])
    numbers = np.array([ids[key] for key in keys], np.int32)
    nodes = np.full((max_nodes, 2), -1, np.int32)
    nodes[0, 0] = _FREE
    waiting = np.zeros((len(keys) + 1, 4), np.int64)
    waiting[0, 2] = len(keys)
    room = _Room(np.zeros(max_nodes, np.bool_), waiting, np.zeros((_BLOCK + 1, 2), np.int64))
    size = _place(data, offsets, numbers, nodes, room) if keys else _BLOCK
    if size > max_nodes:
        raise EngineError("the vocabulary is too large for native")
    return nodes[:size].copy()


class _Room(NamedTuple):
    """Buffers of `_place`."""

    taken: BoolArray
    """Shape (max_slots,): which bases belong to a node."""
    waiting: Int64Array
    """Shape (num_keys + 1, 4): a stack of nodes with children to place, at first the root; for each
    node, its first key, one past its last key, and its depth."""
    children: Int64Array
    """Shape (257, 2): labels, and the first key of each."""


@compiled
def _place(
    data: UInt8Array, offsets: Int64Array, ids: Int32Array, nodes: Int32Array, room: _Room
) -> int:
    """Place the children of one node after another; keys are sorted, so each node has a range.

    nodes: shape (max_slots, 2), all free except the root

    Returns:
        The number of slots in use, or more than there are if they do not suffice.
    """
    taken, waiting, children = room
    num_waiting, single, several, size = 1, _BLOCK, _BLOCK, _BLOCK
    while num_waiting:
        num_waiting -= 1
        node, first = waiting[num_waiting, 0], waiting[num_waiting, 1]
        last, depth = waiting[num_waiting, 2], waiting[num_waiting, 3]
        if offsets[first + 1] - offsets[first] == depth:
            nodes[node, 1] = ids[first]
            first += 1
        count = _find_children(data, offsets, (first, last), depth, children)
        if not count:
            continue
        slot = _free_slot(nodes, room, count, single if count == 1 else several)
        if slot == len(nodes):
            return slot + 1
        base = slot ^ children[0, 0]
        taken[base] = True
        nodes[node, 0] = base << 8 | nodes[node, 0] & 0xFF
        for i in range(count):
            child = base ^ children[i, 0]
            nodes[child, 0] = children[i, 0]
            waiting[num_waiting, 0], waiting[num_waiting, 1] = child, children[i, 1]
            waiting[num_waiting, 2], waiting[num_waiting, 3] = children[i + 1, 1], depth + 1
            num_waiting += 1
        if slot >= size:
            size = (slot | (_BLOCK - 1)) + 1
        if count == 1:
            single = slot  # searching the few gaps before it is not worth it
        else:
            several = slot & ~(_BLOCK - 1)
    return size


@inlined
def _find_children(
    data: UInt8Array, offsets: Int64Array, keys: tuple[int, int], depth: int, children: Int64Array
) -> int:
    """Write the next byte of the keys, once each, with the first key; return their number."""
    first, last = keys
    count, before = 0, np.int64(-1)
    for key in range(first, last):
        label = np.int64(data[offsets[key] + depth])
        if label != before:
            children[count, 0], children[count, 1] = label, key
            count += 1
            before = label
    children[count, 1] = last
    return count


@inlined
def _free_slot(nodes: Int32Array, room: _Room, count: int, slot: int) -> int:
    """Return the first slot, from `slot` on, for the lowest child if all children have room.

    Returns the length of `nodes` if there is no such slot.
    """
    lowest = room.children[0, 0]
    while slot + _BLOCK <= len(nodes):
        fits = nodes[slot, 0] == -1 and not room.taken[slot ^ lowest]
        for i in range(1, count):
            fits &= nodes[slot ^ lowest ^ room.children[i, 0], 0] == -1
        if fits:
            return slot
        slot += 1
    return len(nodes)
