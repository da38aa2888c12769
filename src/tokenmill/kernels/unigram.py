"""Unigram: find the segmentation of a piece with the highest score.

As in the `tokenizers` library, scores are added from the left, and the first of equal candidates
wins. So rounding and ties match the library. Each ▁ begins a new piece.

Source: `EncodeOptimized` of SentencePiece's unigram_model.cc, which `tokenizers` also uses.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.records import (
    FloatArray,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt32Array,
)
from tokenmill.kernels.compiled import compiled, inlined
from tokenmill.kernels.normalizing import MARK_1, MARK_2, MARK_3

UNKNOWN_PENALTY = 10.0
"""The score of an unknown character lies this far below the lowest score."""


class Vocabulary(NamedTuple):
    """A Unigram model for compiled code."""

    nodes: Int32Array
    """The trie of all tokens (`double_array.py`)."""
    scores: FloatArray
    """Shape (num_tokens + 1,): the score of each id; the last one is for unknown characters."""
    unknown: int
    """The id of the unknown token."""
    byte_ids: Int32Array
    """Shape (256,): the tokens of bytes, for unknown characters; -1 for the unknown token."""


class Paths(NamedTuple):
    """The best segmentation that ends at each position of a piece, with room for the longest."""

    totals: FloatArray
    """Its score."""
    links: Int32Array
    """Shape (longest + 1, 2): where its last token begins, or -1, and the id of that token."""


@compiled
def segment(
    text: UInt8Array,
    offsets: Int64Array,
    vocabulary: Vocabulary,
    paths: Paths,
    ids: UInt32Array,
    edges: Int64Array,
) -> None:
    """Write the ids of normalized texts, and their edges."""
    num_ids = 0
    for chunk in range(len(edges) - 1):
        first, last, stop = offsets[chunk], offsets[chunk], offsets[chunk + 1]
        while first < stop:
            last = _end_of_piece(text, last + 1, stop)
            _find_best(text, first, last - first, vocabulary, paths)
            num_ids = _write(text, first, last - first, vocabulary, paths.links, ids, num_ids)
            first = last
        edges[chunk + 1] = num_ids


# The functions below are inlined: passing arrays would take longer than encoding a short piece.


@inlined
def _end_of_piece(text: UInt8Array, place: int, stop: int) -> int:
    """Return where the next ▁ begins, or the text ends."""
    while place < stop and not (
        text[place] == MARK_1 and text[place + 1] == MARK_2 and text[place + 2] == MARK_3
    ):
        place += 1
    return place


@inlined
def _find_best(
    text: UInt8Array, first: int, size: int, vocabulary: Vocabulary, paths: Paths
) -> None:
    """Find the best segmentation that ends at each position of a piece."""
    nodes, scores, unknown = vocabulary.nodes, vocabulary.scores, vocabulary.unknown
    totals, links = paths
    for place in range(size + 1):
        links[place, 0] = -1
    totals[0] = 0
    place = 0
    while place < size:
        byte = text[first + place]
        width = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
        till_here, is_token = totals[place], False
        base, stop = np.int64(nodes[0, 0]) >> 8, place
        while stop < size:
            label = np.int64(text[first + stop])
            node = base ^ label
            found = np.int64(nodes[node, 0])
            if found & 0xFF != label:
                break
            base = found >> 8
            stop += 1
            token = nodes[node, 1]
            if token >= 0:
                candidate = scores[token] + till_here
                is_token |= stop == place + width
                if links[stop, 0] < 0 or candidate > totals[stop]:
                    totals[stop], links[stop, 0], links[stop, 1] = candidate, place, token
        if not is_token:
            stop = place + width
            candidate = scores[-1] + till_here
            if links[stop, 0] < 0 or candidate > totals[stop]:
                totals[stop], links[stop, 0], links[stop, 1] = candidate, place, unknown
        place += width


@inlined
def _write(
    text: UInt8Array,
    first: int,
    stop: int,
    vocabulary: Vocabulary,
    links: Int32Array,
    ids: UInt32Array,
    num_ids: int,
) -> int:
    """Write the ids of the best segmentation; return the new number of ids.

    Consecutive unknown characters are joined to one string, which may be a token itself.
    """
    low, unknown_stop = num_ids, 0
    while stop or unknown_stop:  # from the end
        is_unknown = stop > 0 and links[stop, 1] == vocabulary.unknown
        if unknown_stop and not is_unknown:
            span = (first + stop, first + unknown_stop)
            num_ids = _write_unknown(text, span, vocabulary, ids, num_ids)
            unknown_stop = 0
        if stop:
            if is_unknown:
                unknown_stop = max(unknown_stop, stop)
            else:
                ids[num_ids] = links[stop, 1]
                num_ids += 1
            stop = int(links[stop, 0])
    high = num_ids - 1
    while low < high:
        ids[low], ids[high] = ids[high], ids[low]
        low, high = low + 1, high - 1
    return num_ids


@inlined
def _write_unknown(
    text: UInt8Array, span: tuple[int, int], vocabulary: Vocabulary, ids: UInt32Array, num_ids: int
) -> int:
    """Write the ids of consecutive unknown characters, backwards; return the new number of ids."""
    nodes, byte_ids = vocabulary.nodes, vocabulary.byte_ids
    start, stop = span
    node, known = np.int64(0), True
    for place in range(start, stop):
        label = np.int64(text[place])
        known &= byte_ids[label] >= 0
        if node >= 0:
            node = np.int64(nodes[node, 0]) >> 8 ^ label
            if nodes[node, 0] & 0xFF != label:
                node = np.int64(-1)
    token = nodes[node, 1] if node >= 0 else np.int32(-1)
    if token < 0 and known:
        for place in range(stop - 1, start - 1, -1):
            ids[num_ids] = byte_ids[text[place]]
            num_ids += 1
    else:
        ids[num_ids] = token if token >= 0 else vocabulary.unknown
        num_ids += 1
    return num_ids
