"""How masks are defined: which keys a query attends to inside its segment.

Rules are combined with `&`, `|` and `~`. `Causal() & (Window(2) | Sinks(1))` on 5 tokens:

    query 0    x
    query 1    x x
    query 2    x x x
    query 3    x . x x
    query 4    x . . x x

Two limits hold for every rule (`visible`). A query attends to nothing outside its segment; padding
is a segment, too. And it always attends to itself, so that no softmax is empty.

A rule is a single expression of operators on `Tokens`. The same expression is evaluated on NumPy
arrays (dense masks), on tensors (`mask_mod`), and on the spans of positions that a tile covers
(`blocks.py`), so all forms agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from tokenmill.load.rows.segmentation import BoolArray


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
