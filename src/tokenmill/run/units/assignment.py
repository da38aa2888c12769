"""What a worker is told, how much it may write, and what it has done so far."""

from __future__ import annotations

import msgspec

from tokenmill.read.sources import Source
from tokenmill.run.recipe.options import Recipe

LONG_BATCH = 2
"""A batch of more than so many times the usual bytes is announced: it may take long."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What every worker of a build is told once."""

    recipe: Recipe
    sources: list[Source]
    tokenizer_dir: str
    tokenizer_kind: str
    tokenizer_source: str
    """What makes a Python tokenizer in a worker process; "" for all others."""
    encoding: str
    engine: str
    largest_id: int
    prefix: list[int]
    eos_id: int
    unk_id: int | None
    special_tokens: list[str]
    batch_bytes: int
    cache_bytes: int
    growth_bytes: int
    """By how much a worker may grow before a fresh one takes its place."""
    attempts_dir: str
    shards_dir: str


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much a unit may still write."""

    documents: int | None = None
    tokens: int | None = None


class Tally(msgspec.Struct, kw_only=True):
    """What a unit has done so far, for progress; reported after every batch."""

    source: int = 0
    position: int = 0
    bytes: int = 0
    documents: int = 0
    tokens: int = 0
    rejected: int = 0
