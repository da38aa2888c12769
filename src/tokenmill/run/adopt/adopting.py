"""The main path of adopting: token files that other tools wrote become a dataset.

resolve   load the tokenizer, find the files and check their indexes; nothing is written
find      a dataset of the same files and options is not made again; another one is refused
agree     store what decides the dataset, or compare it with what an earlier attempt stored
space     ids that cannot be shared must fit on the disk
shards    one file after the other becomes a shard; files with a receipt are done
finish    decode a sample, and write the manifest, which completes the dataset
"""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.core.errors import (
    DataError,
    InputChangedError,
    OutputConflictError,
    TokenmillError,
    UserError,
)
from tokenmill.core.options import Overwrite
from tokenmill.core.records import Advance
from tokenmill.encode.engine import Reference
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.read.tokens.pieces import TokenFile
from tokenmill.run.adopt.decisions import Decisions
from tokenmill.run.adopt.shards import write_shard
from tokenmill.run.agreement import stored_start
from tokenmill.run.executor import Receipt
from tokenmill.run.job import versions
from tokenmill.run.journal.ledger import (
    finished_keys,
    read_receipts,
    without_lost_files,
    write_receipt,
)
from tokenmill.run.pipeline import room_for
from tokenmill.run.publish import describe, describe_rows, describe_sources, publish, sweep
from tokenmill.run.recipe.options import EncodeOptions
from tokenmill.run.task import refuse_output_inside
from tokenmill.run.workspace import Workspace, locked, open_workspace
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.dataset import Dataset
from tokenmill.store.files import require_space
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import ADOPTED, RUN_NAME, Attempt, Found, Run, time_now
from tokenmill.store.objects.object_store import open_record

STAGE = "adopting"


@dataclass(frozen=True, slots=True)
class AdoptReport:
    """The result of adopting."""

    dataset: Dataset
    found: Found
    """The sums over all files, and the first ids of the first document."""
    text: str
    """These ids decoded; "" if the tokenizer cannot decode."""
    eos_reason: str
    """What named the end-of-document token."""
    already_there: bool = False


def adopt(
    inputs: Sequence[str],
    tokenizer: str | Path | object,
    out: str,
    options: AdoptOptions,
    encode: EncodeOptions,
    *,
    overwrite: Overwrite = False,
    advance: Advance = lambda stage, done, total: None,
) -> AdoptReport:
    """Make a dataset of token files, or resume: files with a receipt are not read again.

    Args:
        inputs: files, folders, globs, or prefixes of Megatron's pairs.
        tokenizer: the tokenizer that encoded them.
        out: folder of the dataset.
        options: where documents end, and how files are read.
        encode: of these, only the encoding of rank files, EOS and padding are used.
        overwrite: replace a dataset in the folder once the new one is complete.
        advance: called with the stage, the bytes done and the total.

    Raises:
        UserError: an option or an input cannot be used.
        OutputConflictError: the folder holds something else.
        InputChangedError: the folder holds an unfinished adoption of other files or options.
        DataError: a file is damaged, an id is not in the vocabulary, or documents have no EOS.
        StorageError: the disk is too small, or fails.
    """
    if is_remote(out):
        hint = "adopt into a folder, then copy it with tokenmill cp"
        raise UserError("can only adopt into a folder", where=out, hint=hint)
    decided = Decisions.resolve(inputs, tokenizer, options, encode)
    refuse_output_inside(decided.sources, out)
    with open_workspace(out) as workspace:
        if workspace.is_complete() and not overwrite:
            with locked(workspace):
                return _found_before(decided, workspace)
        files = decided.open_files()
        with room_for(None, workspace, overwrite) as (place, _):
            if place.is_complete():  # by another process, meanwhile
                return _found_before(decided, place)
            try:
                return _run(decided, files, place, advance)
            except DataError:
                if not finished_keys(place.store):  # so that other options need no --overwrite
                    place.remove_output()
                raise


def _found_before(decided: Decisions, place: Workspace) -> AdoptReport:
    """Return the report of a complete dataset.

    Raises:
        OutputConflictError: it was made of something else.
    """
    run = open_record(place.store, RUN_NAME, place.store.read(RUN_NAME), Run)
    if why := decided.differences(run.identity):
        raise OutputConflictError(
            "the output folder holds another dataset",
            where=place.location,
            why=why,
            hint="choose another folder, or replace the dataset with --overwrite",
        )
    sweep(place)  # what a kill just after the end has left
    found = msgspec.convert(run.recipe.get(ADOPTED, {}), Found)
    text, reason = _decoded(decided.reference, found.sample), decided.boundary.eos_reason
    return AdoptReport(Dataset(place.folder), found, text, reason, already_there=True)


def _decoded(reference: Reference, ids: Sequence[int]) -> str:
    """Return the text of some ids; "" if the tokenizer cannot decode.

    Raises:
        DataError: it has no token for one of them.
    """
    try:
        return reference.decode(ids) if reference.can_decode else ""
    except TokenmillError:
        raise
    except Exception as error:  # libraries raise KeyError, IndexError and others
        why = f"{type(error).__name__}: {error}"
        hint = "give the tokenizer that encoded the files"
        raise DataError("cannot decode the first document", why=why, hint=hint) from error


def _run(
    decided: Decisions, files: dict[str, TokenFile], place: Workspace, advance: Advance
) -> AdoptReport:
    """Make all shards that have no receipt, and complete the dataset."""
    started, store = time.monotonic(), place.store
    place.create()
    start = stored_start(store, decided.identity)
    if why := decided.differences(msgspec.json.decode(start.identity)):
        raise InputChangedError(
            "cannot resume adopting: its inputs or options have changed",
            where=place.location,
            why=why,
            hint="undo the change, choose another --out, or start again with --overwrite",
        )
    receipts = without_lost_files(store, read_receipts(store))
    left = {key: file for key, file in files.items() if key not in receipts}
    device = place.folder.stat().st_dev
    written = [
        file.num_tokens * decided.dtype.itemsize
        for file in left.values()
        if not decided.can_share(file) or Path(file.source.where).stat().st_dev != device
    ]
    require_space(place.folder, sum(written), "the dataset")
    total = sum(source.num_bytes for source in decided.sources)
    done = total - sum(file.source.num_bytes for file in left.values())
    for key, file in left.items():
        size = file.source.num_bytes

        def tell(share: float, done: int = done, size: int = size) -> None:
            advance(STAGE, done + int(share * size), total)

        receipt = write_shard(file, decided, place.scratch, key, tell)
        parts = [entry.name for entry in receipt.files]
        store.add_files({part_name(key, part): place.scratch / f"{key}.{part}" for part in parts})
        receipts[key] = write_receipt(store, receipt)
        done += size
        advance(STAGE, done, total)
    ordered = [receipts[key] for key in files]
    return _finish(decided, place, ordered, time.monotonic() - started)


def _finish(
    decided: Decisions, place: Workspace, receipts: Sequence[Receipt], seconds: float
) -> AdoptReport:
    """Write the manifest, which completes the dataset.

    Raises:
        DataError: there are no documents, or the first cannot be decoded.
    """
    found = Found()
    for receipt in receipts:
        found.add(receipt.found or Found())
    if not found.documents:
        raise DataError("nothing to adopt", why="no input holds a document with tokens")
    text = _decoded(decided.reference, found.sample)
    boundary, options = decided.boundary, decided.options
    if found.without_prefix:
        boundary = dataclasses.replace(boundary, prefix=())
    found.special -= found.documents * len(boundary.prefix)
    manifest = describe(
        place,
        decided.tokenizer,
        decided.reference,
        boundary,
        fingerprint_of(decided.tokenizer).value,
        {
            "read": {},
            "encode": {"special_tokens": "control" if found.special else "text"},
            "adopt": {"boundaries": options.boundaries, "append_eos": options.append_eos},
        },
        describe_sources(decided.sources, receipts, {}),
        receipts,
    )
    attempt = Attempt(
        started=time_now(), workers=1, memory_bytes=0, max_bad=0.0, on_bad_file="fail"
    )
    run = Run(
        recipe={ADOPTED: msgspec.to_builtins(found), "tokenizer": decided.tokenizer.origin},
        identity=msgspec.to_builtins(decided.identity),
        inputs=[source.where for source in decided.sources],
        host=socket.gethostname(),
        versions=versions(),
        engine=ADOPTED,
        audited_documents=0,
        calibrated_texts=0,
        attempts=[attempt],
        seconds={"wall": round(seconds, 3)},
        peak_bytes=0,
        row_digests=describe_rows(receipts),
    )
    publish(place.store, run, manifest)
    complete = place.take_name()
    sweep(complete, (file.name for file in manifest.files))
    return AdoptReport(Dataset(complete.folder), found, text, boundary.eos_reason)
