"""The contents of `manifest.json` (what the dataset is) and `run.json` (how it was built)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import xxhash
from msgspec import Meta

from tokenmill.core.errors import InternalError, UserError
from tokenmill.store.canonical import canonical_json, read_sealed, write_sealed
from tokenmill.store.files import REPLACED, unfinished_beside

FORMAT_VERSION = 2
MANIFEST_NAME = "manifest.json"
RUN_NAME = "run.json"

ADOPTED = "adopted"
"""The engine of datasets that another tool encoded; in the recipe, what was found in its files."""

MAX_COUNT = 2**53
"""The largest count in a manifest or a plan, so that sums and sizes in bytes stay below 2^63."""
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Counts(msgspec.Struct, kw_only=True):
    """Counts of one or more sources: records + further = documents + empty + rejected."""

    records: Count = 0
    further: Count | msgspec.UnsetType = msgspec.UNSET
    """Documents, including empty ones, after the first of their record; absent if none."""
    record_bytes: Count = 0
    documents: Count = 0
    document_bytes: Count = 0
    tokens: Count = 0
    empty: Count = 0
    empty_bytes: Count = 0
    rejected: dict[str, Count] = {}
    rejected_bytes: Count = 0
    blank_bytes: Count = 0
    bom_bytes: Count = 0
    special_strings: Count = 0
    unknown_tokens: Count = 0

    def add(self, other: Counts) -> None:
        """Add the counts of `other`."""
        for name in self.__struct_fields__:
            if name not in ("rejected", "further"):
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.further = (self.further or 0) + (other.further or 0) or msgspec.UNSET
        rejected = {**self.rejected}
        for reason, count in other.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
        self.rejected = dict(sorted(rejected.items()))

    @property
    def num_rejected(self) -> int:
        """Number of rejected records."""
        return sum(self.rejected.values())

    def check_balance(self, where: str) -> None:
        """Raise an InternalError if a record or a byte is unaccounted for."""
        records = self.documents + self.empty + self.num_rejected
        num_bytes = self.document_bytes + self.empty_bytes + self.rejected_bytes
        if records != self.records + (self.further or 0) or num_bytes != self.record_bytes:
            raise InternalError(
                "the totals of the build do not add up",
                where=where,
                why=f"{self.records} records read, {records - (self.further or 0)} accounted for; "
                f"{self.record_bytes} bytes read, {num_bytes} accounted for",
                hint="this is a bug in tokenmill: please report it with the input",
            )


class Found(msgspec.Struct, kw_only=True):
    """What adopting found in token files of another tool; also in the recipe of the run."""

    documents: Count = 0
    tokens: Count = 0
    empty: Count = 0
    """Documents without ids, which are left out."""
    appended: Count = 0
    """Documents that got an EOS."""
    bare: Count = 0
    """Documents of an EOS alone."""
    repeated: Count = 0
    """Documents that end with several EOS, as padded rows do."""
    special: Count = 0
    """Special tokens inside documents."""
    unknown: Count = 0
    without_prefix: Count = 0
    """Ids that differ from the tokenizer's prefix in its place, and documents too short for it."""
    left_out: list[str] = []
    """What lies beside the ids and is not in the dataset."""
    sample: list[int] = []
    """The first ids of the first document."""
    shared: Count = 0
    """Files whose bytes their shard shares, as a clone or a link."""

    def add(self, other: Found) -> None:
        """Add what another file holds."""
        for name in self.__struct_fields__:
            if name not in ("left_out", "sample"):
                setattr(self, name, getattr(self, name) + getattr(other, name))
        self.left_out = [*dict.fromkeys([*self.left_out, *other.left_out])]
        self.sample = self.sample or other.sample


class FileEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One file of the dataset."""

    name: str
    bytes: Count
    xxh3_128: str


class ExtentEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A part of a source that a shard was built from: bytes, row groups or rows [start, stop)."""

    source: Annotated[int, Meta(ge=0, lt=2**31)]
    start: Count
    stop: Count | None


class ShardEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One shard: `tokens/UNIT.bin`, `.idx` and the files that belong to them."""

    documents: Count
    tokens: Count
    extents: list[ExtentEntry]
    files: list[FileEntry]


class SourceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One input file, with the digest of what was read from it."""

    name: str
    format: str
    compression: str
    origin: str | msgspec.UnsetType = msgspec.UNSET
    """Address of a file that was not on this machine: hf://datasets/OWNER/NAME@COMMIT/PATH."""
    text_field: str | msgspec.UnsetType = msgspec.UNSET
    """The field with the text, if a pattern chose one for this file."""
    bytes: Count
    xxh3_128: str
    counts: Counts
    quarantined: str = ""
    """Why the file was quarantined; "" if it was not."""


class TokenizerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The tokenizer, and the tokens added around every document."""

    kind: str
    encoding: str
    sha256: str
    fingerprint: str | msgspec.UnsetType = msgspec.UNSET
    """Digest of everything that determines the ids of a text; absent in older datasets."""
    reference: str
    largest_id: TokenId
    prefix_ids: list[TokenId]
    eos_id: TokenId
    pad_id: TokenId | None
    files: list[FileEntry]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `manifest.json`, in the order in which it is written."""

    format: str = "tokenmill"
    format_version: int = FORMAT_VERSION
    dataset_id: str
    token_dtype: str
    tokenizer: TokenizerEntry
    policies: dict[str, Any]
    """The policies as written, for the digests; `Dataset.policies` parses them."""
    totals: Counts
    sources: list[SourceEntry]
    shards: list[ShardEntry]
    rejected: list[FileEntry]
    digest: str = ""

    @property
    def files(self) -> list[FileEntry]:
        """Every file that the manifest lists."""
        shards = [file for shard in self.shards for file in shard.files]
        return [*self.tokenizer.files, *shards, *self.rejected]


class Attempt(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One attempt at a build: its start time, and the options that can differ between attempts."""

    started: str
    workers: int
    memory_bytes: int
    recycled_workers: int | msgspec.UnsetType = msgspec.UNSET
    """Workers replaced because their memory had grown; absent in older builds."""
    max_bad: float
    on_bad_file: str


def time_now() -> str:
    """The time in UTC, as an attempt names its start."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of documents with the reference tokenizer; all of them were equal."""

    share: float
    """Share of documents that were compared, each drawn by the hash of its position or id."""
    drawn: Count
    excluded_error_rate: float
    """Upper bound on the share of documents that differ, with 95 % confidence; 0 if all documents
    were compared."""


class Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `run.json`; not part of the dataset's identity."""

    recipe: dict[str, Any]
    identity: dict[str, Any]
    """The inputs and options of the build, as written."""
    inputs: list[str]
    host: str
    versions: dict[str, str]
    engine: str
    audited_documents: int
    audit: Audit | msgspec.UnsetType = msgspec.UNSET
    """UNSET if the reference encoded, no document was drawn, attempts used different shares, or
    the dataset is older than audits."""
    calibrated_texts: int
    attempts: list[Attempt]
    seconds: dict[str, float]
    peak_bytes: int
    tokenizer_commit: str | msgspec.UnsetType = msgspec.UNSET
    """For a tokenizer from the Hub: the commit of its files."""
    row_digests: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """Digests of the rows of tables, by index of the source: boundaries and other columns."""
    digest: str = ""


def dataset_id(
    shards: list[ShardEntry], tokenizer: TokenizerEntry, policies: dict[str, Any]
) -> str:
    """Return the digest of tokens, boundaries, tokenizer and policies, as 32 hexadecimal digits."""
    tokens = [
        file.xxh3_128
        for shard in shards
        for file in shard.files
        if file.name.endswith((".bin", ".idx"))
    ]
    entry = msgspec.structs.replace(tokenizer, files=[], fingerprint=msgspec.UNSET)
    return xxhash.xxh3_128_hexdigest(canonical_json([tokens, entry, policies]))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, which completes the dataset."""
    write_sealed(folder / MANIFEST_NAME, manifest)


def read_manifest(folder: Path) -> Manifest:
    """Read and check `manifest.json`.

    Raises:
        UserError: the folder has no dataset, or one of another format version.
        VerificationError: the manifest is damaged.
    """
    path = folder / MANIFEST_NAME
    if not path.is_file():
        why, hint = "it has no manifest.json", "check the path"
        if not folder.exists():
            why = "the folder does not exist"
            if (unfinished_beside(folder.absolute()) / REPLACED / MANIFEST_NAME).is_file():
                hint = "run the build again; it restores the old dataset"
        elif (folder / "work").is_dir():
            why, hint = "the build has not finished", "run the build again; it resumes"
        raise UserError("cannot find a dataset", where=str(folder), why=why, hint=hint)
    return read_sealed(path, Manifest)
