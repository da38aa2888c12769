"""Masks, defined once: which keys a query sees inside its segment.

Rules are combined with `&`, `|` and `~`. `Causal() & (Window(2) | Sinks(1))` on 5 tokens:

    query 0    x
    query 1    x x
    query 2    x x x
    query 3    x . x x
    query 4    x . . x x

One law stands above every rule (`visible`): a query sees nothing outside its segment, padding
being a segment too, and it always sees itself, so that no softmax is over nothing.

A rule is one expression of operators on `Tokens`. The same expression runs on arrays of numpy
(dense masks), on tensors of torch (`mask_mod`), and on the spans of positions that a tile covers
(`blocks.py`: which tiles are empty, full or partial), so that the forms cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from tokenmill.load.rows.segmentation import BoolArray


@dataclass(frozen=True, slots=True)
class Tokens:
    """What rules know of queries, or of keys.

    Each field is a numpy array, a torch tensor or a `Span`; those of queries broadcast against
    those of keys.
    """

    segment: Any
    """Number of the segment, over all rows."""
    position: Any
    """From 0 on in each segment."""
    prefix: Any = None
    """Tokens of the segment's prefix."""
    task: Any = None
    """Task id of the segment; -1 for padding."""


def visible(mask: Mask, q: Tokens, k: Tokens) -> Any:
    """Whether queries see keys: the law that holds for every rule."""
    return (q.segment == k.segment) & (mask._rule(q, k) | (q.position == k.position))


@dataclass(frozen=True)
class Mask:
    """A rule which keys a query sees, once both are in one segment."""

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        """An expression in which no comparison names a field of `q`, or of `k`, twice."""
        raise NotImplementedError

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def __invert__(self) -> Mask:
        return Not(self)


@dataclass(frozen=True)
class And(Mask):
    """What both masks let a query see."""

    left: Mask
    right: Mask

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return self.left._rule(q, k) & self.right._rule(q, k)


@dataclass(frozen=True)
class Or(Mask):
    """What either mask lets a query see."""

    left: Mask
    right: Mask

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return self.left._rule(q, k) | self.right._rule(q, k)


@dataclass(frozen=True)
class Not(Mask):
    """What a mask hides; a query still sees itself."""

    mask: Mask

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return ~self.mask._rule(q, k)


@dataclass(frozen=True)
class BlockPattern(Mask):
    """Which blocks of `size` tokens see which, counted from the segment's start."""

    size: int

    def _table(self, longest: int) -> BoolArray:
        """Shape (blocks, blocks), enough for segments of `longest` tokens."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class _BlockTable(Mask):
    """A pattern whose table, indexed by query block and key block, is of the consumer's kind."""

    size: int
    table: Any

    def _rule(self, q: Tokens, k: Tokens) -> Any:
        return self.table[q.position // self.size, k.position // self.size]


def with_tables(mask: Mask, longest: int, convert: Callable[[BoolArray], Any]) -> Mask:
    """The same mask with the tables of its patterns, for segments of up to `longest` tokens."""
    if isinstance(mask, BlockPattern):
        return _BlockTable(mask.size, convert(mask._table(longest)))
    parts = _parts(mask)
    return replace(
        mask, **{name: with_tables(part, longest, convert) for name, part in parts.items()}
    )


def uses(mask: Mask, kind: type[Mask]) -> bool:
    """Whether a mask of this kind is part of it."""
    return isinstance(mask, kind) or any(uses(part, kind) for part in _parts(mask).values())


def _parts(mask: Mask) -> dict[str, Mask]:
    """The masks that it is combined from, by field."""
    values = {field.name: getattr(mask, field.name) for field in fields(mask)}
    return {name: value for name, value in values.items() if isinstance(value, Mask)}
