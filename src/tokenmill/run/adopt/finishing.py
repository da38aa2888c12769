"""The manifest of an adopted dataset, and what is told about it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from tokenmill.core.errors import DataError, OutputConflictError
from tokenmill.encode.fingerprint import fingerprint_of
from tokenmill.run.adopt.decisions import Decisions
from tokenmill.run.adopt.shards import Found
from tokenmill.run.executor import Receipt
from tokenmill.run.job import shown, versions
from tokenmill.run.publish import (
    describe_rows,
    describe_sources,
    publish,
    shard_entries,
    store_tokenizer,
    sweep,
    totals_of,
)
from tokenmill.run.workspace import Workspace
from tokenmill.store.dataset import Dataset
from tokenmill.store.layout import token_dtype
from tokenmill.store.manifest import (
    ADOPTED,
    RUN_NAME,
    Attempt,
    Manifest,
    Run,
    TokenizerEntry,
    dataset_id,
    time_now,
)
from tokenmill.store.objects.object_store import open_record


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a finished file."""

    receipt: Receipt
    found: Found
    digest: str = ""


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


def found_before(decided: Decisions, place: Workspace) -> AdoptReport:
    """Return the report of a complete dataset.

    Raises:
        OutputConflictError: it was made of something else.
    """
    run = open_record(place.store, RUN_NAME, place.store.read(RUN_NAME), Run)
    if lines := decided.differences(run.identity):
        raise OutputConflictError(
            "the output folder holds another dataset",
            where=place.location,
            why=shown(lines),
            hint="choose another folder, or replace the dataset with --overwrite",
        )
    sweep(place)  # what a kill just after the end has left
    found = msgspec.convert(run.recipe.get(ADOPTED, {}), Found)
    text, reason = decided.decoded(found.sample), decided.boundary.eos_reason
    return AdoptReport(Dataset(place.folder), found, text, reason, already_there=True)


def finish(
    decided: Decisions, place: Workspace, finished: Sequence[Finished], seconds: float
) -> AdoptReport:
    """Write the manifest, which completes the dataset.

    Raises:
        DataError: there are no documents, or the first cannot be decoded.
    """
    receipts = [each.receipt for each in finished]
    found = _summed([each.found for each in finished])
    if not found.documents:
        raise DataError("nothing to adopt", why="no input holds a document with tokens")
    text = decided.decoded(found.sample)
    prefix = list(decided.boundary.prefix)
    if found.shortest <= len(prefix) or set(found.with_prefix) - {found.documents}:
        prefix = []  # a document lacks it
    found.special -= found.documents * len(prefix)
    manifest = _manifest(decided, place, receipts, prefix, found.special > 0)
    publish(place.store, _record(decided, receipts, found, seconds), manifest)
    complete = place.take_name()
    sweep(complete, (file.name for file in manifest.files))
    return AdoptReport(Dataset(complete.folder), found, text, decided.boundary.eos_reason)


def _manifest(
    decided: Decisions,
    place: Workspace,
    receipts: Sequence[Receipt],
    prefix: list[int],
    has_special: bool,
) -> Manifest:
    options = decided.options
    policies = {
        "read": {},
        "encode": {"special_tokens": "control" if has_special else "text"},
        "adopt": {"boundaries": options.boundaries, "append_eos": options.append_eos},
    }
    file, reference, boundary = decided.file, decided.reference, decided.boundary
    tokenizer = TokenizerEntry(
        kind=file.kind,
        encoding=file.encoding,
        sha256=file.sha256,
        fingerprint=fingerprint_of(file).value,
        reference=reference.name,
        largest_id=reference.largest_id,
        prefix_ids=prefix,
        eos_id=boundary.eos_id,
        pad_id=boundary.pad_id,
        files=store_tokenizer(place, file),
    )
    sources = describe_sources(decided.sources, receipts, {})
    shards = shard_entries(receipts)
    return Manifest(
        dataset_id=dataset_id(shards, tokenizer, policies),
        token_dtype=token_dtype(reference.largest_id).name,
        tokenizer=tokenizer,
        policies=policies,
        totals=totals_of(sources),
        sources=sources,
        shards=shards,
        rejected=[],
    )


def _record(decided: Decisions, receipts: Sequence[Receipt], found: Found, seconds: float) -> Run:
    attempt = Attempt(
        started=time_now(), workers=1, memory_bytes=0, max_bad=0.0, on_bad_file="fail"
    )
    return Run(
        recipe={ADOPTED: msgspec.to_builtins(found), "tokenizer": decided.file.origin},
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


def _summed(parts: Sequence[Found]) -> Found:
    """Return the sums over all files."""
    total = parts[0]
    for part in parts[1:]:
        shortest = min(filter(None, (total.shortest, part.shortest)), default=0)
        sums = {
            name: getattr(total, name) + getattr(part, name)
            for name in part.__struct_fields__
            if isinstance(getattr(part, name), int)
        }
        total = Found(
            **{**sums, "shortest": shortest},
            with_prefix=[a + b for a, b in zip(total.with_prefix, part.with_prefix, strict=True)],
            left_out=[*dict.fromkeys([*total.left_out, *part.left_out])],
            sample=total.sample or part.sample,
        )
    return total
