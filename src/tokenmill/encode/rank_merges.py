"""The merges of a rank file, which lists tokens only: any two whose bytes make a third are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tokenmill.records import Int32Array, Int64Array


class Merges(NamedTuple):
    """Shape (num_merges,) each: places in a list of tokens."""

    lefts: Int32Array
    rights: Int32Array


def merges_of(tokens: Sequence[bytes]) -> Merges:
    """Every way to split a token into two others, in the order of the tokens; those of one token in
    the order of their left parts, then of their right parts.
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
    """Shape (num_tokens,): the longest other token with which each one begins, or -1."""
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
    """Shape (num_bytes,): for each place between two bytes of a token, the token that ends there
    and begins where this one does; `from_end`: the token that begins there and ends where this one
    does. -1 where there is none.

    `longest` has for each token the longest of these, whose own longest is the next.
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
