"""Export the documents of a dataset or a view as the files that other trainers read.

Documents are read in pieces by a second thread, which checks them, and written one after another.
Memory holds some pieces and one bit a document. An export that was stopped continues with the
first file that is not finished.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.options import OptionError, Problem, Ref
from tokenmill.core.paths import output_path
from tokenmill.core.records import Advance
from tokenmill.load.export.documents.format import Format, TokenFile
from tokenmill.load.export.documents.megatron import FILE_BYTES, INDEXES, PAIRS
from tokenmill.load.export.documents.nanogpt import NANOGPT
from tokenmill.load.export.documents.selection import Documents, Selection, Stretch
from tokenmill.load.export.folder import (
    BegunDocuments,
    Unfinished,
    found_export,
    remove_unfinished,
    unfinished,
)
from tokenmill.store.canonical import write_sealed
from tokenmill.store.dataset import Dataset, place_of
from tokenmill.store.exports import EXPORT_NAME, DocumentOptions, DocumentsManifest
from tokenmill.store.files import storage_errors, take_name
from tokenmill.store.layout import index_bytes
from tokenmill.store.manifest import FileEntry


@dataclass(frozen=True, slots=True)
class DocumentsReport:
    """The result of an export of documents."""

    folder: Path
    manifest: DocumentsManifest
    already_there: bool
    files_kept: int
    """Number of files reused from an earlier attempt."""


def export_documents(
    dataset: Dataset,
    out: str | Path,
    options: DocumentOptions | None = None,
    *,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> DocumentsReport:
    """Write the documents of a dataset into the folder `out`, each subset to its own files.

    The same call resumes an interrupted export. `advance` is called with bytes, documents or
    shards, depending on the stage.

    Raises:
        UserError: options do not fit together, an index is to be made of a dataset in a bucket, or
            a path is not valid UTF-8.
        OutputConflictError: something else is at `out`; with `overwrite`, something that is not
            an export.
        VerificationError: the dataset is damaged.
        StorageError: the disk has too little space, or fails.
    """
    options = _settled(options or DocumentOptions())
    out = output_path(out, "the output folder")
    place = place_of(dataset.folder, dataset, out)
    format_ = format_of(options)
    if dataset.origin is not None and not format_.copies_tokens:
        hint = f"copy it first (tokenmill cp {dataset.location} DIR), or copy its tokens here"
        what = "an index needs token files on this machine"
        raise UserError(what, where=dataset.location, hint=hint)
    wanted = describe(dataset, options)
    begun = BegunDocuments(manifest=wanted)
    if found := found_export(out, wanted, overwrite=overwrite):
        remove_unfinished(out, begun)
        return DocumentsReport(out, found, True, 0)
    doing = "write the documents"
    with storage_errors(doing, out), unfinished(out) as work, storage_errors(doing, out):
        advance = work.reporting(advance)
        work.begin(begun, overwrite=overwrite, advance=advance)
        kept = work.num_finished()
        selection = Selection(dataset, options, advance)
        stretches = format_.stretches(selection)
        work.require_space(_needed_bytes(work, format_, selection, stretches))
        files = _write(work, format_, selection, stretches, advance)
        parts = [stretch.described for stretch in stretches]
        manifest = msgspec.structs.replace(wanted, dataset_place=place, parts=parts, files=files)
        if not format_.copies_tokens:
            manifest = _link(manifest, dataset, work.rows, out)
        if format_.describe is not None:
            manifest = format_.describe(manifest, work.rows, out)
        manifest = write_sealed(work.rows / EXPORT_NAME, manifest)
        take_name(work.rows, out)
    return DocumentsReport(out, manifest, False, kept)


def _settled(options: DocumentOptions) -> DocumentOptions:
    """Fill in the size of files, or raise an OptionError if files have no such size."""
    has_size = options.format == "megatron" and not options.index_only
    other = Ref("index_only") if options.format == "megatron" else "the format nanogpt"
    problems = []
    if options.file_size is not msgspec.UNSET and not has_size:
        problems.append(Problem("file_size", "cannot be combined with {}", other))
    if options.index_only and options.format != "megatron":
        problems.append(Problem("index_only", "can only be given for the format megatron"))
    if problems:
        raise OptionError("the export", problems)
    if not has_size:
        return options
    return msgspec.structs.replace(options, file_size=options.file_size or FILE_BYTES)


def format_of(options: DocumentOptions) -> Format:
    """The format that options ask for."""
    if options.format == "nanogpt":
        return NANOGPT
    return INDEXES if options.index_only else PAIRS


def describe(dataset: Dataset, options: DocumentOptions) -> DocumentsManifest:
    """The manifest of an export without files."""
    is_wide = dataset.token_dtype.itemsize == 4
    wide = "uint32" if options.format == "nanogpt" else "int32"
    return DocumentsManifest(
        dataset_id=dataset.manifest.dataset_id,
        options=options,
        dtype=wide if is_wide else "uint16",
        eos_id=dataset.manifest.tokenizer.eos_id,
    )


def _needed_bytes(
    work: Unfinished, format_: Format, selection: Selection, stretches: list[Stretch]
) -> int:
    """The bytes of the files that are not finished."""
    left = [s.described for s in stretches if work.finished(s.described.name) is None]
    needed = 0
    if format_.index is not None:
        needed += sum(index_bytes(each.documents) for each in left)
    if format_.copies_tokens:
        needed += sum(each.tokens for each in left) * selection.dataset.token_dtype.itemsize
    return needed


def _write(
    work: Unfinished,
    format_: Format,
    selection: Selection,
    stretches: list[Stretch],
    advance: Advance,
) -> list[FileEntry]:
    """Write the files that are not finished, and return all."""
    done, total = 0, sum(stretch.described.tokens for stretch in stretches)
    dtype, files = selection.dataset.token_dtype, []
    for stretch in stretches:
        name, before = stretch.described.name, done
        entries = work.finished(name)
        if entries is None:
            path, documents = work.rows / name, stretch.described.documents
            with contextlib.ExitStack() as stack:
                tokens = index = None
                if format_.copies_tokens:
                    tokens = stack.enter_context(closing(TokenFile(work.rows / f"{name}.bin")))
                if format_.index is not None:
                    index = stack.enter_context(closing(format_.index(path, dtype, documents)))
                for located, ids in _one_ahead(selection.read(stretch, tokens is not None)):
                    if tokens is not None:
                        tokens.append(ids)
                    if index is not None:
                        index.append(located)
                    done += int(located.lengths.sum())
                    advance("writing", done * dtype.itemsize, total * dtype.itemsize)
                entries = [file.finish() for file in (tokens, index) if file is not None]
            work.finish(name, entries)
        done = before + stretch.described.tokens
        files += entries
    return files


def _link(
    manifest: DocumentsManifest, dataset: Dataset, folder: Path, out: Path
) -> DocumentsManifest:
    """Link the token file of its shard beside each index."""
    place, links = Path(os.path.realpath(out.parent)) / out.name, {}
    for part in manifest.parts:
        shard = dataset.shards[int(part.name.rpartition("-")[2])]
        name = f"{part.name}.bin"
        links[name] = os.path.relpath(os.path.realpath(shard.path("bin")), place)
        (folder / name).symlink_to(links[name])
    return msgspec.structs.replace(manifest, links=links)


def _one_ahead(documents: Iterator[Documents]) -> Iterator[Documents]:
    """Yield what an iterator yields, which runs in a thread and is one item ahead."""
    with ThreadPoolExecutor(1, "documents") as pool:
        following = pool.submit(next, documents, None)
        while (item := following.result()) is not None:
            following = pool.submit(next, documents, None)
            yield item
