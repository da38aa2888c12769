"""Verify a dataset against its manifest and its sources; a view also against its datasets."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import TokenmillError, UserError, VerificationError
from tokenmill.core.options import OptionError, Problem
from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.kinds import KINDS
from tokenmill.load.rows.loss_spans import read_spans
from tokenmill.read.rendering.transform import Transform, give
from tokenmill.reports.contents import Part
from tokenmill.run.launch import parse_agent
from tokenmill.store.canonical import read_sealed
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.copying.ends import open_end
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.digests import BLOCK_BYTES, file_digest
from tokenmill.store.exports import EXPORT_NAME
from tokenmill.store.manifest import RUN_NAME, Counts, FileEntry, Manifest, Run, dataset_id
from tokenmill.store.policies import Policies
from tokenmill.store.stored_reference import decode_stored, open_reference
from tokenmill.store.temporary import dataset_to_verify, whole_shard
from tokenmill.store.view_manifest import VIEW_NAME, check_matches, damaged_view

if TYPE_CHECKING:
    import pyarrow as pa

MAX_PROBLEMS = 20
NUM_DECODED = 8
OWN_FOLDERS = ("tokens", "documents", "rejected", "tokenizer")


NOT_OF_EXPORTS = {
    "against_sources": "an export is compared with its dataset; give it when you verify that",
    "plan": "an export names its plan",
    "tokenizer": "ids are compared, not decoded",
    "transform": "only a dataset is compared with its sources",
    "shard": "an export is verified as a whole; --sample checks a share of it",
}
"""Options that an export does not take, and why."""


@dataclass(slots=True)
class Verification:
    """What `verify` checked."""

    dataset: Dataset
    shard: str = ""
    """The part that was checked, such as "2/8"; "" for all."""
    files: int = 0
    bytes: int = 0
    documents: int = 0
    tokens: int = 0
    plans: int = 0
    is_export: bool = False
    """Whether an export was verified; `dataset` is what it was compared with."""
    rows: int = 0
    """Rows of an export that were compared."""
    compared_documents: int = 0
    """Documents that were encoded again from the sources with the reference tokenizer."""
    decoded_documents: int = 0
    """Documents decoded as a sample; 0 if a Python tokenizer is missing or cannot decode."""
    parents: list[Verification] = field(default_factory=list)
    """What was checked of the datasets of a view."""
    problems: list[str] = field(default_factory=list)


def verify(
    folder: str | Path,
    *,
    sample: float = 1.0,
    against_sources: bool = False,
    plans: Sequence[str | Path] = (),
    tokenizer: object = None,
    transform: Callable[[dict[str, Any]], Any] | str | None = None,
    shard: str = "",
    dataset: str | Path | None = None,
    advance: Advance = lambda stage, done, total: None,
) -> Verification:
    """Check every digest and count of a dataset and its plans.

    Of a view, this checks its datasets in the same way, then the view and its plans. Of an export,
    it compares every token, label and position with the dataset.

    Args:
        folder: folder of the dataset, view or export.
        sample: share of token blocks and documents to check. Of an export, it is the share of rows
            or documents that are compared; below 1, digests of its files are not.
        against_sources: also read the sources again, encode them with the reference tokenizer and
            compare all ids.
        plans: folders of further plans, outside the dataset.
        tokenizer: the tokenizer object or `python:MODULE:NAME`, if the dataset was built with a
            tokenizer written in Python. Other tokenizers are stored in the dataset.
        transform: the function that built the texts, needed to compare with the sources.
        shard: check only a part, such as "2/8". Parts 0/8 to 7/8 together cover everything.
        dataset: the dataset of an export, if either has moved. Of the other options, an export
            takes only `sample`.
        advance: called with a stage, the amount done and the total, to show progress.

    Raises:
        VerificationError: something differs. The message lists the differences.
        UserError: the dataset does not exist, or the Python tokenizer is missing or differs; an
            option does not fit what is verified.
    """
    if not 0 < sample <= 1:  # next to nothing would be checked, also with NaN
        problem = Problem("sample", "got {}; must be above 0 and at most 1", sample)
        raise OptionError("the verification", [problem])
    if not is_remote(folder) and (Path(folder) / EXPORT_NAME).is_file():
        given = (against_sources, plans, tokenizer, transform, shard)
        _refuse("the export", dict(zip(NOT_OF_EXPORTS.items(), given, strict=True)))
        return _verify_export(folder, dataset, sample, advance)
    _refuse("the dataset", {("dataset", "this is no export, which has a dataset"): dataset})
    if transform is not None:
        Transform.named(transform if isinstance(transform, str) else give(transform))
    with dataset_to_verify(folder) as opened:
        agent = parse_agent(shard or "0/1", os.environ, "shard")
        part = Part(opened, agent.index, agent.count)
        result = Verification(opened, shard=str(agent) if shard else "")
        if opened.is_view:
            for root in dict.fromkeys(each.folder for each in opened.roots):
                of_root = verify(
                    root,
                    sample=sample,
                    against_sources=against_sources,
                    tokenizer=tokenizer,
                    shard=shard,
                    advance=advance,
                )
                result.parents.append(of_root)
            _check_view(result, part, advance)
            result.plans += _check_plans(part, [*opened.plans, *map(str, plans)], advance)
            return result
        _collect(result, _check_identity, opened)
        if part.is_first:
            _collect(result, _check_strangers, opened)
            _collect(result, _check_run, opened)
        sampled = _check_contents(result, part, sample, advance)
        _raise_problems(result)
        missing = tokenizer is None and KINDS[opened.manifest.tokenizer.kind].is_described
        if against_sources or (sampled and not missing):
            reading = sample if against_sources else 0.0
            arguments = (result, part, tokenizer, sampled, reading, advance)
            _collect(result, _check_with_reference, *arguments)
        _raise_problems(result)
        result.plans = _check_plans(part, [*opened.plans, *map(str, plans)], advance)
    return result


def _verify_export(
    folder: str | Path, dataset: str | Path | None, sample: float, advance: Advance
) -> Verification:
    from tokenmill.load.export.verifying.checking import check_export  # loads a compiler

    found = check_export(folder, dataset, sample=sample, advance=advance)
    counts = (found.num_files, found.num_bytes, found.documents, found.tokens)
    return Verification(found.dataset, "", *counts, is_export=True, rows=found.rows)


def _refuse(what: str, given: dict[tuple[str, str], object]) -> None:
    """Raise a UserError if options that do not fit have values; says why."""
    problems = [
        Problem(name, f"cannot be used: {why}") for (name, why), value in given.items() if value
    ]
    if problems:
        raise OptionError(f"verifying {what}", problems)


def _check_view(result: Verification, part: Part, advance: Advance) -> None:
    """Compare the counts of a view with its documents; opening it has compared its digests.

    Raises:
        VerificationError: they differ.
    """
    dataset = result.dataset
    for name in ("files", "bytes", "plans", "compared_documents", "decoded_documents"):
        setattr(result, name, sum(getattr(parent, name) for parent in result.parents))
    result.documents, result.tokens = dataset.num_documents, dataset.num_tokens
    if not part.is_first:
        return
    check_matches(dataset.folder)
    path = dataset.folder / VIEW_NAME
    sources = dataset.manifest.sources
    documents, tokens = (np.zeros(len(sources), np.int64) for _ in range(2))
    for number, shard in enumerate(dataset.shards):
        chosen, lengths = shard.chosen, shard.selected_lengths()
        if int(lengths.sum()) != shard.num_tokens:
            raise damaged_view(path, f"the documents of shard {number} have other tokens")
        numbers = dataset.source_numbers(shard)[chosen]
        np.add.at(documents, numbers, 1)
        np.add.at(tokens, numbers, lengths)
        shard.release()
        advance("view", number + 1, len(dataset.shards))
    kept = [(source.counts.documents, source.counts.tokens) for source in sources]
    if list(zip(documents.tolist(), tokens.tolist(), strict=True)) != kept:
        raise damaged_view(path, "the documents of its sources have other counts")


def _check_contents(
    result: Verification, part: Part, sample: float, advance: Advance
) -> list[Int64Array]:
    """Check files and their content; returns the ids of some documents to decode."""
    dataset = part.dataset
    step = max(dataset.num_documents // NUM_DECODED, 1)
    documents = part.documents
    sampled = [number for number in range(0, dataset.num_documents, step) if number in documents]
    shards = dataset.shards[part.shards]
    if dataset.origin is None:
        files = [*part.files, *(file for shard in shards for file in shard.entry.files)]
        _check_files(result, files, sample, advance)
        _raise_problems(result)  # damaged files are not opened
    else:
        end = open_end(dataset.location, "a dataset")
        _collect(result, end.require_sizes, dataset.manifest.files)
        _check_files(result, part.files, sample, advance)
    ids: list[Int64Array] = []
    for index, shard in enumerate(shards):
        _collect(result, _check_shard, result, shard, sampled, ids)
        advance("shards", index + 1, len(shards))
    return ids


def _check_plans(part: Part, plans: Sequence[str], advance: Advance) -> int:
    """Check the plans of this part; returns their number."""
    names = part.plans(plans)
    if names:
        from tokenmill.reports.plans import check_plans  # loads a compiler

        dataset = part.dataset
        if dataset.origin is not None:
            dataset.origin.obtain(shard.entry.files[1] for shard in dataset.shards)
        check_plans(dataset, names, advance)
    return len(names)


def _raise_problems(result: Verification) -> None:
    if result.problems:
        raise _all_problems(result)


def _all_problems(result: Verification) -> VerificationError:
    count = len(result.problems)
    return VerificationError(
        f"the dataset has {count} problem{'s' if count > 1 else ''}",
        where=result.dataset.location,
        why="\n       ".join(result.problems[:MAX_PROBLEMS]),
        hint="restore the files from a copy, or build the dataset again with --overwrite",
    )


def _collect(result: Verification, check: Callable[..., None], *arguments: object) -> None:
    """Run a check and record its errors as problems, so that the next check can run."""
    try:
        check(*arguments)
    except UserError:
        raise
    except TokenmillError as error:
        result.problems.append("; ".join(filter(None, (error.what, error.where, error.why))))
    except (OSError, ValueError) as error:
        result.problems.append(f"{type(error).__name__}: {error}")


def _problem(what: str, where: str = "", why: str = "") -> VerificationError:
    return VerificationError(what, where=where, why=why)


def _check_identity(dataset: Dataset) -> None:
    manifest = dataset.manifest
    totals = Counts()
    for source in manifest.sources:
        source.counts.check_balance(source.name)
        totals.add(source.counts)
    documents = sum(shard.documents for shard in manifest.shards)
    tokens = sum(shard.tokens for shard in manifest.shards)
    if totals != manifest.totals or (documents, tokens) != (totals.documents, totals.tokens):
        raise _problem("the counts of sources, shards and totals differ", "manifest.json")
    if manifest.dataset_id != dataset_id(manifest.shards, manifest.tokenizer, manifest.policies):
        raise _problem("the dataset id does not follow from the contents", "manifest.json")


def _check_strangers(dataset: Dataset) -> None:
    known = {file.name for file in dataset.manifest.files}
    for name in _names_in_own_folders(dataset):
        if name not in known:
            raise _problem("a file is not part of the dataset", name)


def _names_in_own_folders(dataset: Dataset) -> list[str]:
    if dataset.origin is not None:
        return sorted(open_end(dataset.location, "a dataset").sizes(OWN_FOLDERS))
    paths = [path for folder in OWN_FOLDERS for path in (dataset.folder / folder).glob("*")]
    return sorted(path.relative_to(dataset.folder).as_posix() for path in paths)


def _check_run(dataset: Dataset) -> None:
    path = dataset.folder / RUN_NAME
    if not path.is_file():
        raise _problem("a file is missing", RUN_NAME)
    read_sealed(path, Run)


def _check_files(
    result: Verification, files: Sequence[FileEntry], sample: float, advance: Advance
) -> None:
    total = sum(file.bytes for file in files)
    for file in files:
        blocked = sample < 1 and file.name.endswith((".bin", ".idx"))
        check = _check_blocks if blocked else _check_digest
        _collect(result, check, result.dataset, file, sample)
        result.files += 1
        result.bytes += file.bytes
        advance("files", result.bytes, total)


def _check_digest(dataset: Dataset, file: FileEntry, _: float) -> None:
    if dataset.origin is not None:
        dataset.origin.obtain([file])
    if file_digest(dataset.folder / file.name) != file.xxh3_128:
        raise _problem("a file is damaged", file.name, "its xxh3 digest differs")


def _check_blocks(dataset: Dataset, file: FileEntry, sample: float) -> None:
    """Check the digests of random 64 KiB blocks of a shard."""
    stem, part = file.name.rsplit(".", 1)
    digests = np.fromfile(dataset.folder / f"{stem}.xxh3", "<u8")
    sizes = {
        entry.name: -(-entry.bytes // BLOCK_BYTES)
        for entry in dataset.manifest.files
        if entry.name in (f"{stem}.bin", f"{stem}.idx")
    }
    first = sizes[f"{stem}.bin"] if part == "idx" else 0
    count = sizes[file.name]
    if len(digests) != sum(sizes.values()):
        raise _problem("a list of block digests has the wrong length", f"{stem}.xxh3")
    blocks = np.flatnonzero(np.random.default_rng().random(count) < sample)
    with (
        open(dataset.folder / file.name, "rb") as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        for block in blocks.tolist():
            piece = data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
            if xxhash.xxh3_64_intdigest(piece) != int(digests[first + block]):
                where = f"{file.name}, bytes from {block * BLOCK_BYTES}"
                raise _problem("a block is damaged", where, "its xxh3 digest differs")


def _check_shard(
    result: Verification, shard: Shard, sampled: Sequence[int], ids: list[Int64Array]
) -> None:
    """Check the content of a shard, and collect the ids of sampled documents."""
    dataset = result.dataset
    with whole_shard(dataset, shard):
        if dataset.origin is not None:
            result.files += len(shard.entry.files)
            result.bytes += sum(file.bytes for file in shard.entry.files)
        _check_tokens(result, shard)
        for number in sampled:
            found, index = dataset.locate(number)
            if found is shard:
                ids.append(shard.document(index).astype(np.int64))


def _check_tokens(result: Verification, shard: Shard) -> None:
    tokenizer = result.dataset.manifest.tokenizer
    where = shard.path("bin").name
    ids, offsets = shard.ids, shard.offsets
    if len(ids) != offsets[-1]:
        raise _problem("the boundaries do not match the number of tokens", where)
    if int(ids.max()) > tokenizer.largest_id or int(ids.min()) < 0:
        raise _problem("an id is outside the vocabulary", where, f"{ids.max()}")
    if not (ids[offsets[1:] - 1] == tokenizer.eos_id).all():
        raise _problem("a document does not end with the end-of-document token", where)
    if int(shard.lengths.min()) <= len(tokenizer.prefix_ids):
        raise _problem("a document is too short for its prefix and end-of-document token", where)
    for place, expected in enumerate(tokenizer.prefix_ids):
        if not (ids[offsets[:-1] + place] == expected).all():
            raise _problem("a document does not begin with the tokenizer's prefix", where)
    table = shard.documents()
    _check_table(table, shard, result.dataset.manifest)
    result.documents += table.num_rows
    result.tokens += len(ids)


def _check_table(table: pa.Table, shard: Shard, manifest: Manifest) -> None:
    """Check the documents table of a shard, which has the right columns and rows."""
    where = shard.path("parquet").name
    for name, known in (
        ("source", [source.name for source in manifest.sources]),
        ("subset", ["train", "validation"]),
    ):
        strange = set(table.column(name).unique().to_pylist()) - set(known)
        if strange:
            raise _problem(f"a documents table has an unknown {name}", where, repr(strange.pop()))
    if (table.column("position").to_numpy() < 0).any():
        raise _problem("a documents table has a negative position", where)
    has_spans = msgspec.convert(manifest.policies, Policies).has_no_loss
    if has_spans != ("no_loss" in table.column_names):
        raise _problem(
            "a documents table and the policies contradict each other about no_loss", where
        )
    if has_spans:
        read_spans(shard)


def _check_with_reference(
    result: Verification,
    part: Part,
    tokenizer: object,
    documents: Sequence[Int64Array],
    sample: float,
    advance: Advance,
) -> None:
    """Decode some documents; encode a sample of those of the sources again, if there is one."""
    reference = open_reference(part.dataset, tokenizer)
    if reference.can_decode:
        for ids in documents:
            decode_stored(reference, ids.tolist())
        result.decoded_documents += len(documents)
    if sample:
        from tokenmill.reports.comparison import compare_with_sources

        result.compared_documents = compare_with_sources(part, reference, sample, advance)
