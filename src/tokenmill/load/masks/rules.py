"""Masks: which keys a query attends to inside its segment, and the rules they consist of.

The keys that query 4 attends to, in a segment of 6 tokens:

                                       0 1 2 3 4 5
    Bidirectional()                    x x x x x x
    Causal()                           x x x x x .
    Window(3)                          . . x x x .
    Window(2, dilation=2)              . . x . x .
    Window(2, both_sides=True)         . . . x x x
    Chunks(3)                          . . . x x x
    Sinks(2), GlobalTokens((0, 1))     x x . . x .     a query always attends to itself
    Prefix(), of 3 tokens              x x x . x .
    Blocks(2, ((2, 1),))               . . x x x .

Rules are combined with `&`, `|` and `~`: add sinks, global tokens and prefixes to other rules with
`|`, and restrict rules to chunks with `&`. Two limits hold for every rule (`visible`). A query
attends to nothing outside its segment; padding is a segment, too. And it always attends to itself,
so that no softmax is empty.

A rule is a single expression of operators on `Tokens`. The same expression is evaluated on NumPy
arrays (dense masks), on tensors (`mask_mod`), and on the spans of positions that a tile covers
(`blocks.py`), so all forms agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from operator import or_
from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import BoolArray
from tokenmill.kernels.permutation import keyed_hash


@dataclass(frozen=True, slots=True)
class Tokens:
    """The properties of queries, or of keys, that rules can use.

    Each field is a NumPy array, a tensor or a `Span`. Fields of queries broadcast against those of
    keys.
    """

    segment: Any
    """Number of the segment, over all rows."""
    position: Any
    """Position in the segment, from 0."""
    prefix: Any = None
    """Length of the segment's prefix in tokens."""
    task: Any = None
    """Task id of the segment; -1 for padding."""


def visible(mask: Mask, q: Tokens, k: Tokens) -> Any:
    """Return whether queries attend to keys, within the limits that hold for every rule."""
    return (q.segment == k.segment) & (mask._rule(q, k) | (q.position == k.position))


@dataclass(frozen=True)
class Mask:
    """A rule for which keys of its segment a query attends to.

    Combine masks with `&`, `|` and `~`. A query always attends to itself, and never to another
    segment.
    """

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        """Return whether `q` attends to `k`.

        No comparison may use a field of `q`, or of `k`, twice: spans would lose how they relate.
        """
        raise NotImplementedError

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def __invert__(self) -> Mask:
        return Not(self)


@dataclass(frozen=True)
class And(Mask):
    """The keys that both masks allow."""

    left: Mask
    right: Mask

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return self.left._rule(q, k) & self.right._rule(q, k)


@dataclass(frozen=True)
class Or(Mask):
    """The keys that either mask allows."""

    left: Mask
    right: Mask

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return self.left._rule(q, k) | self.right._rule(q, k)


@dataclass(frozen=True)
class Not(Mask):
    """The keys that a mask does not allow, and the query itself."""

    mask: Mask

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return ~self.mask._rule(q, k)


@dataclass(frozen=True)
class BlockPattern(Mask):
    """A rule for blocks of `size` tokens, counted from the start of the segment."""

    size: int

    def _table(self, longest: int) -> BoolArray:
        """Return which blocks attend to which, shape (blocks, blocks), for `longest` tokens."""
        raise NotImplementedError

    def _num_blocks(self, longest: int) -> int:
        """Return a power of two, so that batches of similar lengths have tables of one shape.

        Compiled kernels depend on the shape. A larger table starts the same.
        """
        return 1 << (longest // self.size).bit_length()


@dataclass(frozen=True, eq=False)
class _BlockTable(Mask):
    """A pattern with its table, indexed by query block and key block, in the form to compute in."""

    size: int
    table: Any

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return self.table[q.position // self.size, k.position // self.size]


def with_tables(mask: Mask, longest: int, convert: Callable[[BoolArray], Any]) -> Mask:
    """Return the mask with the tables of its patterns, for segments of up to `longest` tokens."""
    if isinstance(mask, BlockPattern):
        return _BlockTable(mask.size, convert(mask._table(longest)))
    parts = _parts(mask)
    return replace(
        mask, **{name: with_tables(part, longest, convert) for name, part in parts.items()}
    )


def uses(mask: Mask, kind: type[Mask]) -> bool:
    """Return whether a mask contains a mask of this kind."""
    return isinstance(mask, kind) or any(uses(part, kind) for part in _parts(mask).values())


def _parts(mask: Mask) -> dict[str, Mask]:
    """Return the masks that a mask combines, by field."""
    values = {field.name: getattr(mask, field.name) for field in fields(mask)}
    return {name: value for name, value in values.items() if isinstance(value, Mask)}


@dataclass(frozen=True)
class Bidirectional(Mask):
    """All keys of the segment. With one segment per row, this is the padding mask of encoders."""

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.position >= 0


@dataclass(frozen=True)
class Causal(Mask):
    """The query itself and all keys before it."""

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return k.position <= q.position


@dataclass(frozen=True)
class Window(Mask):
    """The last `size` keys, including the query's own; with a dilation of d, every d-th key.

    With `both_sides`, as many keys after the query, too. Sparse Transformers (arXiv 1904.10509),
    Longformer (arXiv 2004.05150). Libraries disagree by one on what a window of W means: see
    `windows`.
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
    """The first `count` tokens of the segment (arXiv 2309.17453). Combine it with a window."""

    count: int

    def __post_init__(self) -> None:
        _at_least(self, 1, self.count)

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.position < self.count


@dataclass(frozen=True)
class GlobalTokens(Mask):
    """Tokens at these positions attend to all, and all attend to them (arXiv 2004.05150)."""

    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        _at_least(self, 0, len(self.positions) - 1, *self.positions)

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return reduce(
            or_, ((q.position == place) | (k.position == place) for place in self.positions)
        )


@dataclass(frozen=True)
class Prefix(Mask):
    """The prefix of the segment (`Grid.prefix_lengths`). Prefix-LM is `Causal() | Prefix()`."""

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.position < k.prefix


@dataclass(frozen=True)
class Chunks(Mask):
    """The query's own chunk of `size` tokens, counted from the start of the segment (Llama 4)."""

    size: int

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size)

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return q.position // self.size == k.position // self.size


@dataclass(frozen=True)
class Task(Mask):
    """All keys, in segments with this task id (`Grid.tasks`)."""

    task: int

    def _rule(self, _q: Tokens, k: Tokens) -> Any:
        return k.task == self.task


def by_source(masks: Mapping[int, Mask], otherwise: Mask) -> Mask:
    """Return a mask that applies one mask per task id; `otherwise` applies to the rest.

    Padding counts as the rest.
    """
    rest: Mask = Bidirectional()
    for task in masks:
        rest = rest & ~Task(task)
    return reduce(or_, (Task(task) & mask for task, mask in masks.items()), rest & otherwise)


@dataclass(frozen=True)
class Blocks(BlockPattern):
    """The given pairs (query block, key block) of blocks of `size` tokens.

    Blocks are counted from the start of the segment.
    """

    pairs: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size)
        _at_least(self, 0, *(block for pair in self.pairs for block in pair))

    def _table(self, longest: int) -> BoolArray:
        table = np.zeros((self._num_blocks(longest),) * 2, np.bool_)
        for query, key in self.pairs:
            if max(query, key) < len(table):
                table[query, key] = True
        return table


@dataclass(frozen=True)
class RandomBlocks(BlockPattern):
    """Each block draws `count` earlier blocks without replacement, and both attend to each other.

    As in BigBird (arXiv 2007.14062). A draw depends only on `seed`, `count` and the number of the
    block, so a segment that grows, as with cached keys, keeps its mask. If the longest segment has
    n blocks, the table takes up to 4 n^2 bytes.
    """

    count: int
    seed: int

    def __post_init__(self) -> None:
        _at_least(self, 1, self.size, self.count)

    def _table(self, longest: int) -> BoolArray:
        return _drawn_blocks(self._num_blocks(longest), self.count, self.seed)


@lru_cache(maxsize=8)
def _drawn_blocks(num_blocks: int, count: int, seed: int) -> BoolArray:
    """Return samples without replacement for all blocks, by R. W. Floyd (CACM 30:9, 1987)."""
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
        why = f"its values must be at least {least}"
        raise UserError("invalid mask", where=repr(mask), why=why)
