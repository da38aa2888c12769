"""Write the manifest, which turns the files of all units into a dataset.

Any agent can do this: equal receipts give equal manifests, and the first manifest counts.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import xxhash

from tokenmill.core.errors import InternalError, TokenmillError
from tokenmill.encode.boundary_policy import BoundaryTokens
from tokenmill.encode.encodings import RANK_ENCODING_NAME
from tokenmill.encode.engine import Reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import FILE_NAMES
from tokenmill.encode.tokenizer_hub import CONFIG_NAME
from tokenmill.read.source import Source
from tokenmill.run.executor import Receipt
from tokenmill.run.workspace import (
    WORK_FOLDERS,
    Workspace,
    is_finished,
    sweep_unfinished,
)
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.files import remove_folder, storage_errors
from tokenmill.store.layout import PART_FOLDERS, part_name, token_dtype
from tokenmill.store.manifest import (
    MANIFEST_NAME,
    RUN_NAME,
    Counts,
    FileEntry,
    Manifest,
    Run,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    dataset_id,
)
from tokenmill.store.objects.object_store import ObjectStore, create_record, open_record

REJECTED = "jsonl"
_STEM = re.compile(r"\d{8}-\d{6}(-limit)?")


def store_tokenizer(workspace: Workspace, file: TokenizerFile) -> list[FileEntry]:
    """Store the tokenizer's exact bytes and its configuration.

    If the output is a bucket, also write them to the agent's local folder, for its workers.
    """
    contents = {f"tokenizer/{FILE_NAMES[file.kind]}": file.data}
    if file.rank_encoding:
        contents[f"tokenizer/{RANK_ENCODING_NAME}"] = file.rank_encoding
    if file.config_data:
        contents[f"tokenizer/{CONFIG_NAME}"] = file.config_data
    folder = workspace.folder / "tokenizer"
    for name, data in contents.items():
        if workspace.bucket is not None:
            with storage_errors("store the tokenizer", folder):
                folder.mkdir(parents=True, exist_ok=True)
                (workspace.folder / name).write_bytes(data)
        if workspace.store.create(name, data) != data:
            workspace.store.replace(name, data)  # an earlier build has stored other bytes
    return [
        FileEntry(name=name, bytes=len(data), xxh3_128=xxhash.xxh3_128_hexdigest(data))
        for name, data in contents.items()
    ]


def describe(
    workspace: Workspace,
    file: TokenizerFile,
    reference: Reference,
    boundary: BoundaryTokens,
    fingerprint: str,
    policies: dict[str, Any],
    sources: list[SourceEntry],
    receipts: Sequence[Receipt],
) -> Manifest:
    """Store the tokenizer, and return the manifest of a dataset.

    Args:
        workspace: the output.
        file: the tokenizer.
        reference: the library that defines its ids.
        boundary: the ids before and after every document.
        fingerprint: see `TokenizerEntry`.
        policies: see `Manifest`.
        sources: see `describe_sources`.
        receipts: of all units, in the order of the inputs.
    """
    tokenizer = TokenizerEntry(
        kind=file.kind,
        encoding=file.encoding,
        sha256=file.sha256,
        fingerprint=fingerprint,
        reference=reference.name,
        largest_id=reference.largest_id,
        prefix_ids=list(boundary.prefix),
        eos_id=boundary.eos_id,
        pad_id=boundary.pad_id,
        files=store_tokenizer(workspace, file),
    )
    shards = shard_entries(receipts)
    return Manifest(
        dataset_id=dataset_id(shards, tokenizer, policies),
        token_dtype=token_dtype(reference.largest_id).name,
        tokenizer=tokenizer,
        policies=policies,
        totals=totals_of(sources),
        sources=sources,
        shards=shards,
        rejected=rejected_files(receipts),
    )


def totals_of(sources: Iterable[SourceEntry]) -> Counts:
    """Return the counts of all sources together."""
    totals = Counts()
    for source in sources:
        totals.add(source.counts)
    return totals


def shard_entries(receipts: Iterable[Receipt]) -> list[ShardEntry]:
    """Return the shards of all units that have documents."""
    return [
        ShardEntry(
            documents=receipt.documents,
            tokens=receipt.tokens,
            extents=receipt.extents,
            files=[_named(receipt, file) for file in receipt.files if file.name != REJECTED],
        )
        for receipt in receipts
        if receipt.documents
    ]


def rejected_files(receipts: Sequence[Receipt]) -> list[FileEntry]:
    """Return the files of rejected records, in the order of the inputs."""
    return [
        _named(receipt, file)
        for receipt in receipts
        for file in receipt.files
        if file.name == REJECTED
    ]


def _named(receipt: Receipt, file: FileEntry) -> FileEntry:
    """Return the entry of a unit's file, with its name in the output."""
    return msgspec.structs.replace(file, name=part_name(receipt.key, file.name))


def publish(store: ObjectStore, run: Run, manifest: Manifest) -> Run:
    """Write `run.json` and `manifest.json`, which completes the dataset.

    Returns the stored record of the run: the one of the agent that published first.

    Raises:
        InternalError: another agent has built another manifest from the same receipts.
    """
    first = create_record(store, RUN_NAME, run)
    data = canonical_json(sealed(manifest))
    if store.create(MANIFEST_NAME, data) != data:
        why = "both were built from the same receipts"
        raise InternalError("two manifests differ", where=store.location, why=why)
    return first


def describe_sources(
    sources: Sequence[Source], receipts: Sequence[Receipt], quarantined: Mapping[int, str]
) -> list[SourceEntry]:
    """Return the counts and digest of every source, summed over all units that read it."""
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
            text_field=source.text_field or msgspec.UNSET,
            bytes=source.num_bytes,
            xxh3_128=xxhash.xxh3_128_hexdigest(digests[source.index]),
            counts=counts[source.index],
            quarantined=quarantined.get(source.index, ""),
        )
        for source in sources
    ]


def describe_rows(receipts: Sequence[Receipt]) -> dict[str, str] | msgspec.UnsetType:
    """Return the row digest of each table, if all its units have one."""
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


def stored_manifest(store: ObjectStore) -> Manifest:
    """Return the manifest of a complete output."""
    return open_record(store, MANIFEST_NAME, store.read(MANIFEST_NAME), Manifest)


def sweep(workspace: Workspace, named: Iterable[str] | None = None) -> None:
    """Remove the working files of a complete output, except a lock that is still held.

    With `named`, also remove files of units that are not among these names, such as those after a
    limit. Files that cannot be removed are left: they do no harm.
    """
    store, keep = workspace.store, None if named is None else set(named)
    with contextlib.suppress(TokenmillError, OSError):
        for folder in sorted(set(PART_FOLDERS.values())) if keep is not None else ():
            found = store.sizes(folder)
            store.remove([name for name in found if name not in (keep or ()) and _is_part(name)])
        if workspace.bucket is not None:
            for folder in ("work", *WORK_FOLDERS):
                store.remove(store.sizes(folder))
            return
        sweep_unfinished(workspace.folder)
        for name in WORK_FOLDERS:
            shutil.rmtree(workspace.folder / name, ignore_errors=True)
        for pattern in ("*.json", "probe-*", ".probe-*"):
            for path in workspace.work.glob(pattern):
                path.unlink(missing_ok=True)
        beside = workspace.beside()
        if is_finished(beside) and not beside.is_begun():  # a kill has left the old output there
            remove_folder(beside.folder.parent)


def _is_part(name: str) -> bool:
    """Whether this is the name of a unit's file."""
    stem, _, part = name.rpartition("/")[2].partition(".")
    return _STEM.fullmatch(stem) is not None and part_name(stem, part) == name
