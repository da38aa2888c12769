"""Receipts to a dataset: shards get their numbers, then the manifest makes them a dataset.

The list of moves is stored before the first, so that a crash between two moves can be undone.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import xxhash

from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import FILE_NAMES
from tokenmill.encode.tokenizer_hub import CONFIG_NAME
from tokenmill.errors import DataError, InternalError
from tokenmill.read.sources import Source
from tokenmill.run.commit.receipts import judge_rejected
from tokenmill.run.commit.workspace import Workspace
from tokenmill.run.units.assignment import Receipt
from tokenmill.store.canonical import canonical_json
from tokenmill.store.files import fsync_path, storage_errors, write_atomically
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import (
    Counts,
    FileEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    dataset_id,
)
from tokenmill.store.policies import Policies

PUBLISH_NAME = "publish.json"
PART_FOLDERS = {
    "bin": "tokens",
    "idx": "tokens",
    "xxh3": "tokens",
    "parquet": "documents",
    "jsonl": "rejected",
}


def store_tokenizer(folder: Path, file: TokenizerFile) -> list[FileEntry]:
    """Write the tokenizer's exact bytes, and the configuration that was beside it."""
    contents = {FILE_NAMES[file.kind]: file.data}
    if file.config_data:
        contents[CONFIG_NAME] = file.config_data
    with storage_errors("store the tokenizer", folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            write_atomically(path, data)
    return [
        FileEntry(
            name=f"tokenizer/{name}", bytes=len(data), xxh3_128=xxhash.xxh3_128_hexdigest(data)
        )
        for name, data in contents.items()
    ]


@dataclass(frozen=True, slots=True)
class Description:
    """What a manifest says beside its shards."""

    sources: list[SourceEntry]
    tokenizer: TokenizerEntry
    policies: Policies


def number_and_describe(
    workspace: Workspace, description: Description, receipts: Sequence[Receipt], max_bad: float
) -> Manifest:
    """Judge what the units did, give their files their final names, and describe the dataset.

    Raises:
        DataError: too many records were rejected, or there is no document.
    """
    tokenizer = description.tokenizer
    totals = Counts()
    for source in description.sources:
        totals.add(source.counts)
    rejected_files = [
        workspace.shards / f"{receipt.key}.jsonl"
        for receipt in receipts
        if any(file.name == "jsonl" for file in receipt.files)
    ]
    judge_rejected(totals, max_bad, rejected_files)
    if not totals.documents:
        raise DataError("nothing to write", why="no input holds a document with text")
    shards, rejected = _number_shards(workspace, receipts)
    policies = msgspec.to_builtins(description.policies)
    return Manifest(
        dataset_id=dataset_id(shards, tokenizer, policies),
        token_dtype=token_dtype(tokenizer.largest_id).name,
        tokenizer=tokenizer,
        policies=policies,
        totals=totals,
        sources=description.sources,
        shards=shards,
        rejected=rejected,
    )


def _number_shards(
    workspace: Workspace, receipts: Sequence[Receipt]
) -> tuple[list[ShardEntry], list[FileEntry]]:
    """Move the units' files to their final names; units without documents get no number.

    Returns the shards, and the files of rejected records.
    """
    moves: list[tuple[str, FileEntry]] = []
    shards: list[ShardEntry] = []
    rejected: list[FileEntry] = []
    for index, receipt in enumerate(receipts):
        files: list[FileEntry] = []
        for file in receipt.files:
            number = index if file.name == "jsonl" else len(shards)
            name = f"{PART_FOLDERS[file.name]}/{number:05d}.{file.name}"
            entry = msgspec.structs.replace(file, name=name)
            moves.append((f"{receipt.key}.{file.name}", entry))
            (rejected if file.name == "jsonl" else files).append(entry)
        if receipt.documents:
            shards.append(
                ShardEntry(
                    documents=receipt.documents,
                    tokens=receipt.tokens,
                    extents=receipt.extents,
                    files=files,
                )
            )
    move_files(workspace, moves)
    return shards, rejected


def move_files(workspace: Workspace, moves: Sequence[tuple[str, FileEntry]]) -> None:
    """Give files of units, by the name that each has among them, the names of their entries."""
    write_atomically(workspace.work / PUBLISH_NAME, canonical_json(moves))
    folders = sorted({entry.name.partition("/")[0] for _, entry in moves})
    for name in folders:
        with storage_errors("create a folder", workspace.out / name):
            (workspace.out / name).mkdir(exist_ok=True)
    for unit_name, entry in moves:
        _move(workspace.shards / unit_name, workspace.out / entry.name, entry)
    for name in folders:
        with storage_errors("flush a folder", workspace.out / name):
            fsync_path(workspace.out / name)


def recall_shards(workspace: Workspace) -> None:
    """Give shards that an interrupted attempt has numbered their units' names again."""
    path = workspace.work / PUBLISH_NAME
    if path.is_file():
        moves = msgspec.json.decode(path.read_bytes(), type=list[tuple[str, FileEntry]])
        for unit_name, entry in moves:
            if (workspace.out / entry.name).is_file():
                (workspace.out / entry.name).replace(workspace.shards / unit_name)
        path.unlink()


def _move(old: Path, new: Path, entry: FileEntry) -> None:
    with storage_errors("publish a shard", new):
        if not old.is_file() or old.stat().st_size != entry.bytes:
            raise InternalError("a finished shard has vanished", where=str(old))
        old.replace(new)


def describe_sources(
    sources: Sequence[Source], receipts: Sequence[Receipt], quarantined: Mapping[int, str]
) -> list[SourceEntry]:
    """Books and digest of every source, over all units that read a part of it."""
    counts = {source.index: Counts() for source in sources}
    digests = dict.fromkeys(counts, b"")  # a hasher takes 600 bytes, and there may be many sources
    for receipt in receipts:
        for index, entry in receipt.counts.items():
            counts[int(index)].add(entry)
        for index, digest in receipt.read_digests.items():
            digests[int(index)] += bytes.fromhex(digest)
    for source in sources:
        counts[source.index].check_balance(source.name)
    return [
        SourceEntry(
            name=source.name,
            format=source.format,
            compression=source.compression,
            origin=source.origin or msgspec.UNSET,
            bytes=source.num_bytes,
            xxh3_128=xxhash.xxh3_128_hexdigest(digests[source.index]),
            counts=counts[source.index],
            quarantined=quarantined.get(source.index, ""),
        )
        for source in sources
    ]


def describe_rows(receipts: Sequence[Receipt]) -> dict[str, str] | msgspec.UnsetType:
    """The digest of the rows of each table of which all units have one."""
    digests: dict[str, bytes] = {}
    lacking: set[str] = set()
    for receipt in receipts:
        rows = receipt.row_digests or {}
        lacking |= receipt.read_digests.keys() - rows.keys()
        for index, digest in rows.items():
            digests[index] = digests.get(index, b"") + bytes.fromhex(digest)
    found = {
        index: xxhash.xxh3_128_hexdigest(data)
        for index, data in digests.items()
        if index not in lacking
    }
    return found or msgspec.UNSET


def sweep(workspace: Workspace) -> None:
    """Remove the work folder of a complete dataset, all but the lock that is still held.

    What cannot be removed stays: the dataset is complete without it.
    """
    for folder in (workspace.attempts, workspace.shards, workspace.receipts):
        shutil.rmtree(folder, ignore_errors=True)
    for path in workspace.work.glob("*.json"):
        with contextlib.suppress(OSError):
            path.unlink()
