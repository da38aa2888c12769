"""Unigram training: expected counts of tokens, their counts in best segmentations, and losses.

Words and tokens are UTF-8. A character that no token covers alone can be unknown. Probabilities are
multiplied, not added as logarithms; so that long words do not underflow, a number is a mantissa and
an exponent, which counts factors of 2^512.

Sources: T. Kudo: Subword regularization, ACL 2018 (arXiv 1804.10959), section 3.2; SentencePiece's
unigram_model_trainer.cc.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import FloatArray, Int32Array, Int64Array, UInt8Array
from tokenmill.kernels.compiled import compiled, inner

NONE = -1
_CHUNK = 512
_SMALL, _LARGE = 2.0 ** (-_CHUNK // 2), 2.0**_CHUNK
"""A mantissa below the first is multiplied by the second."""


class Pieces(NamedTuple):
    """Tokens and their scores."""

    nodes: Int32Array
    """The trie of all tokens (`double_array.py`)."""
    scores: FloatArray
    """Shape (num_pieces + 1,): log-probabilities; -inf if a token was removed. The last one is that
    of unknown characters."""


class Texts(NamedTuple):
    """Words, concatenated."""

    data: UInt8Array
    offsets: Int64Array
    """Shape (num_words + 1,)."""
    counts: Int64Array
    """Shape (num_words,): occurrences."""


class _Sums(NamedTuple):
    """For each position of a word, the sum of the probabilities of all paths to it."""

    mantissas: FloatArray
    exponents: Int64Array


class _Paths(NamedTuple):
    """The best segmentation up to each position of a word, with room for the longest."""

    totals: FloatArray
    """Its score."""
    links: Int64Array
    """Shape (longest + 1, 2): its last token, and where that begins."""
    edges: Int64Array
    """Shape (longest + 1, 2): room for the tokens that begin at a position."""


@compiled
def expected_counts(texts: Texts, pieces: Pieces) -> FloatArray:
    """Return how often each token is expected in the words, shape (num_pieces + 1,)."""
    longest = _longest(texts)
    probabilities = np.exp(pieces.scores)
    before = _Sums(np.empty(longest + 1), np.empty(longest + 1, np.int64))
    after = _Sums(np.empty(longest + 1), np.empty(longest + 1, np.int64))
    edges = np.empty((longest + 1, 2), np.int64)
    expected = np.zeros(len(pieces.scores))
    for word in range(len(texts.counts)):
        first, size = texts.offsets[word], texts.offsets[word + 1] - texts.offsets[word]
        before.mantissas[: size + 1], before.exponents[: size + 1] = 0.0, 0
        before.mantissas[0] = 1.0
        for place in range(size):
            if before.mantissas[place] > 0:
                _normalize(before, place)
                for i in range(_edges(texts.data, first + place, first + size, pieces, edges)):
                    token, stop = edges[i, 0], edges[i, 1] - first
                    _add(before, place, probabilities[token], stop)
        _normalize(before, size)
        total, exponent = before.mantissas[size], before.exponents[size]
        after.mantissas[: size + 1], after.exponents[: size + 1] = 0.0, 0
        after.mantissas[size] = 1.0
        for place in range(size - 1, -1, -1):
            if before.mantissas[place] > 0:
                here = texts.counts[word] * before.mantissas[place] / total
                for i in range(_edges(texts.data, first + place, first + size, pieces, edges)):
                    token, stop = edges[i, 0], edges[i, 1] - first
                    share = here * probabilities[token] * after.mantissas[stop]
                    chunks = before.exponents[place] + after.exponents[stop] - exponent
                    expected[token] += share if chunks == 0 else math.ldexp(share, -_CHUNK * chunks)
                    _add(after, stop, probabilities[token], place)
                _normalize(after, place)
    return expected


@compiled
def best_counts(texts: Texts, pieces: Pieces) -> FloatArray:
    """Return how often each token is in the best segmentations, shape (num_pieces + 1,)."""
    paths = _room_for(texts)
    found = np.zeros(len(pieces.scores))
    for word in range(len(texts.counts)):
        first, stop = texts.offsets[word], texts.offsets[word + 1]
        _find_best(texts.data, first, stop, pieces, NONE, paths)
        place = stop - first
        while place:
            found[paths.links[place, 0]] += texts.counts[word]
            place = paths.links[place, 1]
    return found


@compiled
def losses(names: Texts, pieces: Pieces, counts: FloatArray) -> FloatArray:
    """Return by how much the likelihood falls without each token, shape (num_pieces,).

    -inf if a token has no count or a better segmentation; inf if it has no other one. It is assumed
    that the best other one takes its place everywhere.

    names: the texts of the tokens
    counts: the result of `best_counts`
    """
    paths = _room_for(names)
    total = counts[:-1].sum()
    found = np.full(len(names.counts), -np.inf)
    for piece in range(len(found)):
        count, first, stop = counts[piece], names.offsets[piece], names.offsets[piece + 1]
        if count == 0 or pieces.scores[piece] == -np.inf:
            continue
        _find_best(names.data, first, stop, pieces, piece, paths)
        place, others, ours = stop - first, 0, math.log(count / total)
        if paths.totals[place] == -np.inf:
            found[piece] = np.inf
            continue
        if paths.totals[place] > pieces.scores[piece]:
            continue
        theirs = 0.0
        while place:
            theirs += math.log(counts[paths.links[place, 0]] + count)
            place, others = paths.links[place, 1], others + 1
        theirs -= others * math.log(total + count * (others - 1))
        found[piece] = count * (ours - theirs)
    return found


@inner
def _longest(texts: Texts) -> int:
    longest = 0
    for word in range(len(texts.counts)):
        longest = max(longest, texts.offsets[word + 1] - texts.offsets[word])
    return longest


@inner
def _room_for(texts: Texts) -> _Paths:
    room = _longest(texts) + 1
    return _Paths(np.empty(room), np.empty((room, 2), np.int64), np.empty((room, 2), np.int64))


@inner
def _edges(data: UInt8Array, first: int, last: int, pieces: Pieces, edges: Int64Array) -> int:
    """Write the tokens that begin at a place, and where each ends; return their number."""
    byte = data[first]
    alone = first + 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
    base, stop, count, is_known = np.int64(pieces.nodes[0, 0]) >> 8, first, 0, False
    while stop < last:
        label = np.int64(data[stop])
        node = base ^ label
        found = np.int64(pieces.nodes[node, 0])
        if found & 0xFF != label:
            break
        base = found >> 8
        stop += 1
        token = np.int64(pieces.nodes[node, 1])
        if token >= 0 and pieces.scores[token] > -np.inf:
            is_known |= stop == alone
            edges[count, 0], edges[count, 1] = token, stop
            count += 1
    if not is_known:
        edges[count, 0], edges[count, 1] = len(pieces.scores) - 1, alone
        count += 1
    return count


@inner
def _normalize(sums: _Sums, place: int) -> None:
    """Keep a sum away from 0."""
    while 0 < sums.mantissas[place] < _SMALL:
        sums.mantissas[place] *= _LARGE
        sums.exponents[place] += 1


@inner
def _add(sums: _Sums, place: int, probability: float, to: int) -> None:
    """Add the paths through one place to those of another."""
    more, exponent = sums.mantissas[place] * probability, sums.exponents[place]
    if sums.mantissas[to] == 0:
        sums.exponents[to] = exponent
    chunks = exponent - sums.exponents[to]
    if chunks > 0:
        more = math.ldexp(more, -_CHUNK * chunks)
    elif chunks < 0:
        sums.mantissas[to] = math.ldexp(sums.mantissas[to], _CHUNK * chunks)
        sums.exponents[to] = exponent
    sums.mantissas[to] += more


@inner
def _find_best(
    data: UInt8Array, first: int, last: int, pieces: Pieces, without: int, paths: _Paths
) -> None:
    """Find the best segmentation up to each place."""
    totals, links, edges = paths
    size = last - first
    totals[: size + 1] = -np.inf
    totals[0] = 0.0
    for place in range(size):
        if totals[place] == -np.inf:
            continue
        for i in range(_edges(data, first + place, last, pieces, edges)):
            token, stop = edges[i, 0], edges[i, 1] - first
            score = totals[place] + pieces.scores[token]
            if token != without and score > totals[stop]:
                totals[stop], links[stop, 0], links[stop, 1] = score, token, place
