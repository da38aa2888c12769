"""Unigram sampling: draw a segmentation of a word with its probability.

T. Kudo: Subword regularization, ACL 2018 (arXiv 1804.10959), with the full lattice (nbest -1): a
segmentation is drawn in proportion to P(segmentation)^alpha. The algorithm is forward filtering,
backward sampling: sum over all paths from the start, then draw tokens from the end.

A character without a token becomes its bytes if the model has byte fallback, else the unknown
token; consecutive unknown tokens become one. A character that occurs only inside longer tokens
counts as unknown only if no segmentation avoids that, so no text is lost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import FloatArray, Int32Array, Int64Array
from tokenmill.kernels.compiled import compiled, inner
from tokenmill.kernels.pair_table import PairTable, slot_of
from tokenmill.kernels.permutation import ONE, draw


class Trie(NamedTuple):
    """A trie over the symbols of tokens; node 0 is the root."""

    children: PairTable
    """The child of each pair (node, symbol)."""
    tokens: Int32Array
    """Shape (num_nodes,): the id of the token that ends at a node, or -1."""
    scores: FloatArray
    """Shape (num_nodes,): the log-probability of that token, times alpha."""


class Fallback(NamedTuple):
    """The ids of symbols that no token of a segmentation covers."""

    ids: Int32Array
    offsets: Int64Array
    """Shape (num_symbols + 1,): symbol i becomes `ids[offsets[i]:offsets[i + 1]]`."""
    unknown: int
    """The unknown token; consecutive ones are written once."""


class _Lattice(NamedTuple):
    """Values for each position between the symbols of a word; shape (length + 1,)."""

    totals: FloatArray
    """The logarithm of the sum over all paths from the start."""
    unknowns: Int64Array
    """The fewest unknown symbols on a path from the start."""
    last_edges: Int64Array
    """The last edge found that ends here, or -1."""


class _Edges(NamedTuple):
    """The tokens that occur in a word, in the order of their starts; shape (room,)."""

    starts: Int64Array
    tokens: Int64Array
    """-1 for an unknown symbol."""
    weights: FloatArray
    links: Int64Array
    """The previous edge with the same end, or -1."""


@compiled
def sample(
    symbols: Int32Array, offsets: Int64Array, trie: Trie, fallback: Fallback, key: np.uint64
) -> Int32Array:
    """Sample the ids of all words, concatenated."""
    longest = 0
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    numbers = np.empty((2, longest + 1), np.int64)
    lattice = _Lattice(np.empty(longest + 1), numbers[0], numbers[1])
    edges = _room_for(8 * longest + 8)
    path = np.empty(longest, np.int64)
    result = np.empty(4 * len(symbols), np.int32)  # a character falls back to at most four bytes
    num_ids, draws = 0, np.uint64(0)
    for i in range(len(offsets) - 1):
        word = symbols[offsets[i] : offsets[i + 1]]
        lattice.last_edges[:] = -1
        lattice.totals[0], lattice.unknowns[0] = 0.0, 0
        num_edges = 0
        for place in range(len(word)):
            if place:
                _sum_paths(lattice, edges, place)
            if num_edges + len(word) - place + 1 > len(edges.starts):
                edges = _grown(edges, num_edges + len(word) - place + 1)
            num_edges = _find_tokens(word, place, trie, lattice, edges, num_edges)
        _sum_paths(lattice, edges, len(word))
        length = _draw_path(lattice, edges, path, len(word), key, draws)
        draws += np.uint64(length)
        num_ids = _write(word, path[:length], edges, fallback, result, num_ids)
    return result[:num_ids].copy()


@inner
def _room_for(room: int) -> _Edges:
    numbers = np.empty((3, room), np.int64)
    return _Edges(numbers[0], numbers[1], np.empty(room), numbers[2])


@inner
def _grown(edges: _Edges, room: int) -> _Edges:
    old, grown = len(edges.starts), _room_for(max(2 * len(edges.starts), room))
    grown.starts[:old], grown.tokens[:old] = edges.starts, edges.tokens
    grown.weights[:old], grown.links[:old] = edges.weights, edges.links
    return grown


@inner
def _find_tokens(
    word: Int32Array, place: int, trie: Trie, lattice: _Lattice, edges: _Edges, num_edges: int
) -> int:
    """Add an edge for every token that begins at a position; return the new number of edges."""
    node, stop, alone = np.int64(0), place, False
    while node >= 0 and stop < len(word):
        node = np.int64(trie.children.values[slot_of(trie.children, node, np.int64(word[stop]))])
        stop += 1
        if node >= 0 and trie.tokens[node] >= 0:
            alone |= stop == place + 1
            edges.starts[num_edges], edges.tokens[num_edges] = place, trie.tokens[node]
            edges.weights[num_edges] = trie.scores[node]
            edges.links[num_edges] = lattice.last_edges[stop]
            lattice.last_edges[stop] = num_edges
            num_edges += 1
    if not alone:
        edges.starts[num_edges], edges.tokens[num_edges] = place, -1
        edges.weights[num_edges] = 0.0
        edges.links[num_edges] = lattice.last_edges[place + 1]
        lattice.last_edges[place + 1] = num_edges
        num_edges += 1
    return num_edges


@inner
def _sum_paths(lattice: _Lattice, edges: _Edges, place: int) -> None:
    """Sum over the edges that end at a position; only paths with the fewest unknowns count."""
    fewest, most = len(lattice.totals), -np.inf
    edge = lattice.last_edges[place]
    while edge >= 0:
        start = edges.starts[edge]
        unknowns = lattice.unknowns[start] + (1 if edges.tokens[edge] < 0 else 0)
        if unknowns < fewest:
            fewest, most = unknowns, -np.inf
        if unknowns == fewest:
            most = max(most, lattice.totals[start] + edges.weights[edge])
        edge = edges.links[edge]
    total = 0.0
    edge = lattice.last_edges[place]
    while edge >= 0:
        start = edges.starts[edge]
        if lattice.unknowns[start] + (1 if edges.tokens[edge] < 0 else 0) == fewest:
            total += math.exp(lattice.totals[start] + edges.weights[edge] - most)
        edge = edges.links[edge]
    lattice.unknowns[place] = fewest
    lattice.totals[place] = most + math.log(total)


@inner
def _draw_path(
    lattice: _Lattice,
    edges: _Edges,
    path: Int64Array,
    place: int,
    key: np.uint64,
    draws: np.uint64,
) -> int:
    """Draw edges from the end of a word to its start; return their number."""
    length = 0
    while place > 0:
        rest = np.float64(draw(key, draws + np.uint64(length))) / ONE
        edge = lattice.last_edges[place]
        path[length] = -1
        while edge >= 0 and (path[length] < 0 or rest >= 0):
            start = edges.starts[edge]
            unknowns = lattice.unknowns[start] + (1 if edges.tokens[edge] < 0 else 0)
            if unknowns == lattice.unknowns[place]:
                weight = lattice.totals[start] + edges.weights[edge]
                rest -= math.exp(weight - lattice.totals[place])
                path[length] = edge  # rounding may leave some `rest`: then keep the last edge
            edge = edges.links[edge]
        place = edges.starts[path[length]]
        length += 1
    return length


@compiled
def _write(
    word: Int32Array,
    path: Int64Array,
    edges: _Edges,
    fallback: Fallback,
    result: Int32Array,
    num_ids: int,
) -> int:
    """Write the ids of a path, which lists its last edge first; return the new number of ids."""
    after_unknown = False
    for i in range(len(path) - 1, -1, -1):
        token, symbol = edges.tokens[path[i]], word[edges.starts[path[i]]]
        for j in range(fallback.offsets[symbol], fallback.offsets[symbol + 1]):
            found = fallback.ids[j] if token < 0 else np.int32(token)
            if not (after_unknown and found == fallback.unknown):
                result[num_ids] = found
                num_ids += 1
            after_unknown = found == fallback.unknown
            if token >= 0:
                break
    return num_ids
