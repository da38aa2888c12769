"""A double-array trie over the bytes of tokens, which finds a child with one read; and WordPiece.

A node holds a *base*; its child for a byte is at `base ^ byte`, and holds that byte as its label.
Each base belongs to one node, so the label alone says whether a node has the child.

Source: J. Aoe, An efficient digital search algorithm by using a double-array structure (1989);
with xor, like darts-clone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tokenmill.core.errors import EngineError
from tokenmill.core.records import BoolArray, Int32Array, Int64Array, UInt8Array, UInt32Array
from tokenmill.kernels.compiled import compiled

MAX_NODES = 1 << 22
"""Limited because bases and labels share 31 bits."""
_BLOCK = 256
"""All children of a node are in one block of this many slots."""
_FREE = 255
"""The label of free slots; this byte never occurs in UTF-8."""
LATER_PIECE = b"\xfe"
"""What a piece begins with in the trie of `match_pieces` if it continues a word."""
_LATER = LATER_PIECE[0]


def double_array(ids: Mapping[bytes, int], max_nodes: int = MAX_NODES) -> Int32Array:
    """Build a trie of byte strings without the byte 0xFF.

    Returns:
        Shape (num_slots, 2); node 0 is the root. Column 0 is `base << 8 | label`, column 1 the id
        of the token that ends here, or -1.

    Raises:
        EngineError: the trie needs more than `max_nodes` slots.
    """
    keys = sorted(key for key in ids if key)
    nodes = np.full((max_nodes if keys else _BLOCK, 2), -1, np.int32)
    nodes[0, 0] = _FREE
    if not keys:
        return nodes
    data = np.frombuffer(b"".join(keys), np.uint8)
    offsets = np.cumsum([0, *map(len, keys)], dtype=np.int64)
    numbers = np.array([ids[key] for key in keys], np.int32)
    waiting = np.zeros((len(keys) + 1, 4), np.int64)
    waiting[0, 2] = len(keys)
    scratch = (np.zeros(max_nodes, np.bool_), waiting, np.zeros((_BLOCK + 1, 2), np.int64))
    size = _place(data, offsets, numbers, nodes, *scratch)
    if size > max_nodes:
        raise EngineError("the vocabulary is too large for native")
    return nodes[:size].copy()


@compiled
def _place(  # noqa: C901
    data: UInt8Array,
    offsets: Int64Array,
    ids: Int32Array,
    nodes: Int32Array,
    taken: BoolArray,
    waiting: Int64Array,
    children: Int64Array,
) -> int:
    """Place the children of one node after another; keys are sorted, so each node has a range.

    nodes: shape (max_slots, 2), all free except the root
    taken: shape (max_slots,), which bases belong to a node
    waiting: shape (num_keys + 1, 4), a stack of nodes with children to place, at first the root;
    for each node, its first key, one past its last key, and its depth
    children: shape (257, 2), a buffer for labels and the first key of each

    Returns:
        The number of slots in use, or more than there are if they do not suffice.
    """
    num_waiting, single, several, size = 1, _BLOCK, _BLOCK, _BLOCK
    while num_waiting:
        num_waiting -= 1
        node, first = waiting[num_waiting, 0], waiting[num_waiting, 1]
        last, depth = waiting[num_waiting, 2], waiting[num_waiting, 3]
        if offsets[first + 1] - offsets[first] == depth:
            nodes[node, 1] = ids[first]
            first += 1
        count, before = 0, np.int64(-1)
        for key in range(first, last):
            label = np.int64(data[offsets[key] + depth])
            if label != before:
                children[count, 0], children[count, 1] = label, key
                count += 1
                before = label
        if not count:
            continue
        children[count, 1] = last
        slot, lowest = (single if count == 1 else several) - 1, children[0, 0]
        fits = False
        while not fits:
            slot += 1
            if slot + _BLOCK > len(nodes):
                return len(nodes) + 1
            fits = nodes[slot, 0] == -1 and not taken[slot ^ lowest]
            for i in range(1, count):
                fits &= nodes[slot ^ lowest ^ children[i, 0], 0] == -1
        base = slot ^ lowest
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


@compiled
def match_pieces(
    words: UInt8Array,
    offsets: Int64Array,
    nodes: Int32Array,
    unknown: int,
    max_word: int,
    ids: UInt32Array,
    stops: Int64Array,
) -> None:
    """Write the ids of each word: its longest pieces, or the unknown token (WordPiece).

    nodes: a trie of all pieces; those after the first one of a word follow LATER_PIECE
    ids: shape (num_bytes,), the output
    stops: shape (num_words + 1,), the output: the offsets of words in `ids`
    """
    later = np.int64(nodes[0, 0]) >> 8 ^ _LATER
    if nodes[later, 0] & 0xFF != _LATER:
        later = np.int64(-1)
    count = 0
    for word in range(len(offsets) - 1):
        first_id, place, stop = count, offsets[word], offsets[word + 1]
        size = stop - place
        if size > max_word:  # the limit counts characters, so subtract continuation bytes
            for i in range(place, stop):
                size -= words[i] & 0xC0 == 0x80
        node, known = np.int64(0), size <= max_word
        while known and place < stop:
            token, end = np.int64(-1), place
            for i in range(place, stop):
                label = np.int64(words[i])
                node = np.int64(nodes[node, 0]) >> 8 ^ label
                if nodes[node, 0] & 0xFF != label:
                    break
                if nodes[node, 1] >= 0:
                    token, end = np.int64(nodes[node, 1]), i + 1
            ids[count] = np.uint32(token)
            count += 1
            place, node, known = end, later, token >= 0 and (end == stop or later >= 0)
        if not known:
            ids[first_id] = np.uint32(unknown)
            count = first_id + 1
        stops[word + 1] = count
