"""The rules that masks are made of. On a segment of 6 tokens, query 4 sees the keys marked:

                                       0 1 2 3 4 5
    Bidirectional()                    x x x x x x
    Causal()                           x x x x x .
    Window(3)                          . . x x x .
    Window(2, dilation=2)              . . x . x .
    Window(2, both_sides=True)         . . . x x x
    Chunks(3)                          . . . x x x
    Sinks(2), GlobalTokens((0, 1))     x x . . x .     the query itself is always seen
    Prefix(), of 3 tokens              x x x . x .
    Blocks(2, ((2, 1),))               . . x x x .

Sinks, global tokens and prefixes are joined to others with `|`, chunks are cut out with `&`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_
from typing import Any

import numpy as np

from tokenmill.errors import UserError
from tokenmill.load.masks.definition import BlockPattern, Mask, Tokens
from tokenmill.load.rows.segmentation import BoolArray
from tokenmill.permutation import keyed_hash


@dataclass(frozen=True)
class Bidirectional(Mask):
    """All keys of the segment. With one segment to a row it is the padding mask of encoders."""

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.position >= 0


@dataclass(frozen=True)
class Causal(Mask):
    """The query itself and what stands before it."""

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return k.position <= q.position


@dataclass(frozen=True)
class Window(Mask):
    """The last `size` keys, the query's own included; with a dilation every so many-th of them.

    Sparse Transformers (arXiv 1904.10509), Longformer (arXiv 2004.05150). With `both_sides`, as
    many keys to the right. What consumers call a window of W differs by one: see `windows.py`.
    """

    size: int
    dilation: int = 1
    both_sides: bool = False

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size, self.dilation)

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        reach = self.size * self.dilation
        seen = q.position - k.position < reach
        if self.both_sides:
            seen = seen & (k.position - q.position < reach)
        else:
            seen = seen & (k.position <= q.position)
        if self.dilation > 1:
            seen = seen & ((q.position - k.position) % self.dilation == 0)
        return seen


@dataclass(frozen=True)
class Sinks(Mask):
    """The first `count` tokens of the segment (arXiv 2309.17453); to be joined with a window."""

    count: int

    def __post_init__(self) -> None:
        _at_least(self, 1, self.count)

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.position < self.count


@dataclass(frozen=True)
class GlobalTokens(Mask):
    """Tokens at some positions see all, and all see them (Longformer, arXiv 2004.05150)."""

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        _at_least(self, 0, len(self.positions) - 1, *self.positions)

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return reduce(
            or_, ((q.position == place) | (k.position == place) for place in self.positions)
        )


@dataclass(frozen=True)
class Prefix(Mask):
    """The prefix of the segment, `Grid.prefix_lengths`; prefix-LM is `Causal() | Prefix()`."""

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.position < k.prefix


@dataclass(frozen=True)
class Chunks(Mask):
    """Tokens of the query's own chunk, counted from the segment's start (Llama 4)."""

    size: int

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size)

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return q.position // self.size == k.position // self.size


@dataclass(frozen=True)
class Task(Mask):
    """All keys of segments of one task, `Grid.tasks`."""

    task: int

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.task == self.task


def by_source(masks: Mapping[int, Mask], otherwise: Mask) -> Mask:
    """A mask for the segments of each task id, and one for all others and for padding."""
    rest: Mask = Bidirectional()
    for task in masks:
        rest = rest & ~Task(task)
    return reduce(or_, (Task(task) & mask for task, mask in masks.items()), rest & otherwise)


@dataclass(frozen=True)
class Blocks(BlockPattern):
    """Pairs (query block, key block), in blocks of `size` tokens from the segment's start."""

    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size)
        _at_least(self, 0, *(block for pair in self.pairs for block in pair))

    def _table(self, longest: int) -> BoolArray:
        table = np.zeros((longest // self.size + 1,) * 2, np.bool_)
        for query, key in self.pairs:
            if max(query, key) < len(table):
                table[query, key] = True
        return table


@dataclass(frozen=True)
class RandomBlocks(BlockPattern):
    """Each block draws `count` of the blocks before it, without replacement; both see each other.

    As in BigBird (arXiv 2007.14062). A draw depends on `seed`, `count` and the block's number, not
    on what comes after it: a segment that grows, as cached keys do, keeps its mask. Its table
    takes the square of the blocks of the longest segment, in bytes.
    """

    count: int
    seed: int

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size, self.count)

    def _table(self, longest: int) -> BoolArray:
        # Rounded up, so that batches of like lengths share a table: it only begins alike.
        return _drawn_blocks(1 << (longest // self.size).bit_length(), self.count, self.seed)


@lru_cache(maxsize=8)
def _drawn_blocks(num_blocks: int, count: int, seed: int) -> BoolArray:
    """Samples without replacement, by R. W. Floyd (CACM 30:9, 1987), for all blocks at once."""
    table = np.zeros((num_blocks, num_blocks), np.bool_)
    blocks = np.arange(num_blocks, dtype=np.int64)
    for draw in range(count):
        last = blocks - count + draw  # this draw is from [0, last]
        drawing = blocks[last >= 0]
        last = last[last >= 0]
        keys = (drawing * count + draw).astype(np.uint64)
        chosen = (keyed_hash(keys, seed) % (last + 1).astype(np.uint64)).astype(np.int64)
        table[drawing, np.where(table[drawing, chosen], last, chosen)] = True
    table |= table.T
    table.flags.writeable = False
    return table


def _at_least(mask: Mask, least: int, *values: int) -> None:
    if min(values, default=least) < least:
        raise UserError("a mask is out of range", where=repr(mask), why=f"less than {least}")
