"""Derive the merges of a rank file: every way to split a token into two other tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenmill.core.records import Int32Array, Int64Array


class Merges(NamedTuple):
    """Merges as indexes into a list of tokens; both arrays have shape (num_merges,)."""

    lefts: Int32Array
    rights: Int32Array


def merges_of(tokens: Sequence[bytes]) -> Merges:
    """Return every way to split a token into two others.

    Sorted by token, then left part, then right part.
    """
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    starts = np.cumsum(lengths) - lengths
    lefts = _parts(_longest_prefixes(tokens), lengths, starts, from_end=False)
    rights = _parts(
        _longest_prefixes([token[::-1] for token in tokens]), lengths, starts, from_end=True
    )
    found = np.flatnonzero((lefts >= 0) & (rights >= 0))
    wholes = np.repeat(np.arange(len(tokens), dtype=np.int32), lengths)[found]
    order = found[np.lexsort((lefts[found], wholes))]
    return Merges(lefts[order], rights[order])


def _longest_prefixes(tokens: Sequence[bytes]) -> Int32Array:
    """Return the longest other token that each token begins with, or -1; shape (num_tokens,)."""
    found = [-1] * len(tokens)
    prefixes: list[int] = []
    for place in sorted(range(len(tokens)), key=tokens.__getitem__):
        token = tokens[place]
        while prefixes and not token.startswith(tokens[prefixes[-1]]):
            prefixes.pop()
        if prefixes:
            found[place] = prefixes[-1]
        if token:
            prefixes.append(place)
    return np.array(found, np.int32)


def _parts(
    longest: Int32Array, lengths: Int64Array, starts: Int64Array, from_end: bool
) -> Int32Array:
    """Return, for each position inside each token, the token that spells the bytes before it.

    With `from_end`, return the token that spells the bytes after it. -1 if there is none. Shape
    (num_bytes,), over all tokens. `longest` is the result of `_longest_prefixes`; following it
    repeatedly visits all prefixes that are tokens.
    """
    parts = np.full(int(lengths.sum()), -1, np.int32)
    outer = np.flatnonzero(longest >= 0)
    inner = longest[outer]
    while len(outer):
        cuts = lengths[outer] - lengths[inner] if from_end else lengths[inner]
        parts[starts[outer] + cuts] = inner
        inner = longest[inner]
        outer, inner = outer[inner >= 0], inner[inner >= 0]
    return parts
