"""The main path of adopting: token files that other tools wrote become a dataset.

resolve   load the tokenizer, find the files and check their indexes; nothing is written
find      a dataset of the same files and options is not made again; another one is refused
agree     store what decides the dataset, or compare it with what an earlier attempt stored
space     ids that cannot be shared must fit on the disk
shards    one file after the other becomes a shard; files with a receipt are done
finish    decode a sample, and write the manifest, which completes the dataset
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tokenmill.core.errors import DataError, InputChangedError, StorageError, UserError
from tokenmill.core.options import Overwrite
from tokenmill.core.records import Advance
from tokenmill.core.values import size_text
from tokenmill.read.source import Source
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.read.units import unit_key
from tokenmill.run.adopt.decisions import Decisions
from tokenmill.run.adopt.finishing import AdoptReport, Finished, finish, found_before
from tokenmill.run.adopt.shards import write_shard
from tokenmill.run.agreement import JobRecord, read_job
from tokenmill.run.executor import Receipt, receipt_name
from tokenmill.run.job import shown
from tokenmill.run.journal.ledger import finished_keys, without_lost_files
from tokenmill.run.pipeline import room_for
from tokenmill.run.recipe.options import EncodeOptions
from tokenmill.run.task import refuse_output_inside
from tokenmill.run.workspace import JOB_NAME, Workspace, locked, open_workspace
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import Counts, ExtentEntry
from tokenmill.store.objects.object_store import create_record, open_record

STAGE = "adopting"
Tell = Callable[[int], None]


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
                return found_before(decided, workspace)
        sizes = [decided.size(source) for source in decided.sources]
        with room_for(None, workspace, overwrite) as (place, _):
            if place.is_complete():  # by another process, meanwhile
                return found_before(decided, place)
            try:
                return _run(decided, place, sizes, advance)
            except DataError:
                if not finished_keys(place.store):  # so that other options need no --overwrite
                    place.remove_output()
                raise


def _run(
    decided: Decisions, place: Workspace, sizes: Sequence[tuple[int, bool]], advance: Advance
) -> AdoptReport:
    """Make all shards that have no receipt, and complete the dataset."""
    started, store, sources = time.monotonic(), place.store, decided.sources
    place.create()
    _agree(decided, place)
    finished = {}
    for key in finished_keys(store):
        name = receipt_name(key)
        finished[key] = open_record(store, name, store.read(name), Finished)
    whole = without_lost_files(store, {key: each.receipt for key, each in finished.items()})
    left = [source for source in sources if unit_key(source.index, 0) not in whole]
    _require_space(place, [(source, *sizes[source.index]) for source in left])
    total = sum(source.num_bytes for source in sources)
    done = total - sum(source.num_bytes for source in left)
    for source in left:
        tell = functools.partial(_tell, advance, done, total)
        finished[unit_key(source.index, 0)] = _shard(decided, place, source, tell)
        done += source.num_bytes
        advance(STAGE, done, total)
    ordered = [finished[unit_key(source.index, 0)] for source in sources]
    return finish(decided, place, ordered, time.monotonic() - started)


def _tell(advance: Advance, before: int, total: int, read: int) -> None:
    advance(STAGE, before + read, total)


def _agree(decided: Decisions, place: Workspace) -> None:
    """Store what decides the dataset, or compare it with the stored start."""
    raw = msgspec.Raw(msgspec.json.encode(decided.identity))
    record = sealed(JobRecord(job=secrets.token_hex(8), identity=raw))
    data = place.store.create(JOB_NAME, canonical_json(record))
    stored = read_job(data, f"{place.location}/{JOB_NAME}")
    if lines := decided.differences(msgspec.json.decode(stored.identity)):
        raise InputChangedError(
            "cannot resume adopting: its inputs or options have changed",
            where=place.location,
            why=shown(lines),
            hint="undo the change, choose another --out, or start again with --overwrite",
        )


def _require_space(place: Workspace, left: Sequence[tuple[Source, int, bool]]) -> None:
    """Raise a StorageError if the ids that cannot be shared do not fit on the disk.

    Of each source, `left` has the bytes of its ids, and whether a shard can share them.
    """
    device, needed = place.folder.stat().st_dev, 0
    for source, num_bytes, fits in left:
        if not (fits and source.path and source.path.stat().st_dev == device):
            needed += num_bytes
    free = shutil.disk_usage(place.folder).free
    if needed > free:
        raise StorageError(
            "not enough disk space",
            where=str(place.folder),
            why=f"{size_text(needed)} must be written, and {size_text(free)} are free",
            hint="free some space, or choose a folder on another disk with --out",
        )


def _shard(decided: Decisions, place: Workspace, source: Source, tell: Tell) -> Finished:
    """Make a shard, and store it with its receipt; `tell` is called with the bytes read."""
    started, file, store = time.monotonic(), decided.open(source), place.store
    key, index = unit_key(source.index, 0), str(source.index)
    stem, tokens = f"{key}.{os.getpid()}", max(file.num_tokens, 1)
    written = write_shard(
        file,
        decided.rules,
        place.scratch,
        stem,
        append_eos=decided.options.append_eos,
        advance=lambda read: tell(int(min(read / tokens, 1.0) * source.num_bytes)),
    )
    names = [each.name for each in written.files]
    store.add_files({part_name(key, name): place.scratch / f"{stem}.{name}" for name in names})
    found = written.found
    counts = Counts(
        records=found.documents + found.empty,
        documents=found.documents,
        tokens=found.tokens,
        empty=found.empty,
        unknown_tokens=found.unknown,
    )
    receipt = Receipt(
        key=key,
        extents=[ExtentEntry(source=source.index, start=0, stop=None)],
        files=written.files,
        documents=found.documents,
        tokens=found.tokens,
        counts={index: counts},
        read_digests={index: written.read_digest},
        row_digests={index: written.row_digest},
        audited=0,
        excluded=[],
        seconds=round(time.monotonic() - started, 3),
        input_bytes=source.num_bytes,
    )
    return create_record(store, receipt_name(key), Finished(receipt=receipt, found=found))
