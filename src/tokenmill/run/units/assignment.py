"""The setup and the assignments of workers, and the receipts and results of units."""

from __future__ import annotations

import msgspec

from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import SpooledPart
from tokenmill.read.source import Source
from tokenmill.read.units import Unit
from tokenmill.run.units.tasks import Task
from tokenmill.store.manifest import Counts, ExtentEntry, FileEntry

RECEIPTS = "work/receipts"
LONG_BATCH = 2
"""Batches larger than this multiple of the usual size are announced, because they may take long."""


class Setup(msgspec.Struct, tag="setup", frozen=True, kw_only=True):
    """The setup that every worker of a phase gets once."""

    task: Task
    fields: Fields
    engine: str
    is_watched: bool
    """Whether the tokenizer has unknown steps. Then documents are only encoded in worker processes,
    which can be killed."""
    batch_bytes: int
    cache_bytes: int
    audit_share: float
    """The share of documents that the reference encodes as well."""
    growth_bytes: int
    """By how much a worker may grow before a fresh one replaces it."""
    scratch: str
    """The folder of files of unfinished units."""
    out: str
    """The store of finished units."""
    report_seconds: float = 0.1
    """The shortest time between progress messages of a worker."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much a unit or a build may still write."""

    documents: int | None = None
    tokens: int | None = None


NO_LIMIT = Limit()


class Assignment(msgspec.Struct, tag="run", frozen=True, kw_only=True):
    """A unit that a worker must run."""

    unit: Unit
    sources: list[Source]
    """The sources that the unit reads."""
    spool: SpooledPart | None
    excluded: list[int]
    """Indexes of damaged sources, which are left out."""
    limit: Limit
    careful: bool = False
    """Whether to encode each document alone and announce it, because the unit has crashed."""


class Tally(msgspec.Struct, kw_only=True):
    """The progress of a unit, reported after each batch."""

    source: int = 0
    position: int = 0
    bytes: int = 0
    documents: int = 0
    tokens: int = 0
    rejected: int = 0


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a finished unit: what was read and written, with digests."""

    key: str
    extents: list[ExtentEntry]
    files: list[FileEntry]
    """The unit's files, named by their part: bin, idx, xxh3, parquet and jsonl for a shard."""
    documents: int
    tokens: int
    counts: dict[str, Counts]
    """Counts by index of the source."""
    read_digests: dict[str, str]
    """The xxh3-128 of the decompressed bytes that were read, by index of the source."""
    row_digests: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Digests of the rows of tables, by index of the source. UNSET in older receipts.

    They cover columns that the digests of the texts do not.
    """
    audited: int
    audit_share: float | msgspec.UnsetType = msgspec.UNSET
    """The share of documents drawn for the audit. UNSET if no audit was needed."""
    audit_drawn: int | msgspec.UnsetType = msgspec.UNSET
    """Audited documents that were drawn by the share. The others are short documents."""
    excluded: list[int]
    """Damaged sources that were left out."""
    limited: bool = False
    """Whether the unit stopped at --max-documents or --max-tokens."""
    seconds: float | msgspec.UnsetType = msgspec.UNSET
    """The time that the worker needed. UNSET in older receipts."""
    digest: str = ""

    def is_like(self, other: Receipt) -> bool:
        """Whether both receipts have the same records and the same output bytes."""
        return all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name not in _CIRCUMSTANCES
        )


_CIRCUMSTANCES = ("seconds", "audited", "audit_share", "audit_drawn", "digest")


def receipt_name(key: str) -> str:
    """Return the name of a unit's receipt in the output."""
    return f"{RECEIPTS}/{key}.json"


class Outcome(msgspec.Struct, tag="done", frozen=True, kw_only=True):
    """The result of a unit whose files have their final names."""

    receipt: Receipt
    audit_texts: list[str]
    audit_ids: list[list[int]]
    seconds: dict[str, float]
    """Seconds by stage. The stages of a build are read, encode, write and fsync."""
