"""What a worker is told, how much it may write, and what comes of a unit."""

from __future__ import annotations

import msgspec

from tokenmill.read.documents import SpooledPart
from tokenmill.read.fields import Fields
from tokenmill.read.sources import Source
from tokenmill.read.units import Unit
from tokenmill.run.units.tasks import Task
from tokenmill.store.manifest import Counts, ExtentEntry, FileEntry

RECEIPTS = "work/receipts"
LONG_BATCH = 2
"""A batch of more than so many times the usual bytes is announced: it may take long."""


class Setup(msgspec.Struct, tag="setup", frozen=True, kw_only=True):
    """What every worker of a phase is told once."""

    task: Task
    fields: Fields
    engine: str
    is_watched: bool
    """Whether the tokenizer has unknown steps: documents are then encoded in processes that can be
    ended, never in the one that builds."""
    batch_bytes: int
    cache_bytes: int
    audit_share: float
    """Of documents whose ids the reference gives, too."""
    growth_bytes: int
    """By how much a worker may grow before a fresh one takes its place."""
    scratch: str
    """The folder for files until their units are finished."""
    out: str
    """The store that finished units go to."""
    report_seconds: float = 0.1
    """How often a worker tells at most how far it has come."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much a unit, or a build, may still write."""

    documents: int | None = None
    tokens: int | None = None


NO_LIMIT = Limit()


class Assignment(msgspec.Struct, tag="run", frozen=True, kw_only=True):
    """One unit for a worker."""

    unit: Unit
    sources: list[Source]
    """Those that the unit reads."""
    spool: SpooledPart | None
    excluded: list[int]
    """Damaged sources, which are left out."""
    limit: Limit
    careful: bool = False
    """It has crashed before: encode each document alone, and announce it."""


class Tally(msgspec.Struct, kw_only=True):
    """What a unit has done so far, for progress; reported after every batch."""

    source: int = 0
    position: int = 0
    bytes: int = 0
    documents: int = 0
    tokens: int = 0
    rejected: int = 0


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A finished unit: what was read, what was written, and their digests."""

    key: str
    extents: list[ExtentEntry]
    files: list[FileEntry]
    """Named by their part: of a shard bin, idx, xxh3, parquet, jsonl."""
    documents: int
    tokens: int
    counts: dict[str, Counts]
    """By index of the source."""
    read_digests: dict[str, str]
    """By index of the source: xxh3-128 of the decompressed bytes that were read."""
    row_digests: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """By index of the source: of tables, what the bytes of their texts leave out; older receipts
    do not say.
    """
    audited: int
    audit_share: float | msgspec.UnsetType = msgspec.UNSET
    """The share of documents drawn for the audit; UNSET if no audit was needed."""
    audit_drawn: int | msgspec.UnsetType = msgspec.UNSET
    """Those of `audited` that the share has drawn; the others are the short ones of units."""
    excluded: list[int]
    """Damaged sources that were left out."""
    limited: bool = False
    """Whether the unit stopped at --max-documents or --max-tokens."""
    seconds: float | msgspec.UnsetType = msgspec.UNSET
    """What the unit took its worker; older receipts do not say."""
    digest: str = ""

    def is_like(self, other: Receipt) -> bool:
        """Whether both are of the same work: the same records became the same bytes."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name not in _CIRCUMSTANCES
        )


_CIRCUMSTANCES = ("seconds", "audited", "audit_share", "audit_drawn", "digest")


def receipt_name(key: str) -> str:
    """Where the receipt of a unit is, below the output."""
    return f"{RECEIPTS}/{key}.json"


class Outcome(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    """What came of a unit whose files have their names."""

    receipt: Receipt
    audit_texts: list[str]
    audit_ids: list[list[int]]
    seconds: dict[str, float]
    """By stage: of a build read, encode, write, fsync."""
