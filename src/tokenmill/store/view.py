"""Writing a view: the bits of its documents, then `view.json`. See `store/view_manifest.py`."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.paths import output_path
from tokenmill.core.records import BoolArray, Int32Array
from tokenmill.store.canonical import write_sealed
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.digests import file_digest
from tokenmill.store.files import fsync_path, rename_flushed, storage_errors, temporary_folder
from tokenmill.store.manifest import FileEntry
from tokenmill.store.view_manifest import (
    MATCHES_NAME,
    SELECTION_NAME,
    VIEW_NAME,
    ParentEntry,
    SelectedEntry,
    SelectedShard,
    ViewManifest,
    differences,
    view_id,
)


def write_view(
    out: str | Path,
    parents: Sequence[Dataset],
    masks: Iterable[BoolArray],
    question: Sequence[str],
    note: Callable[[BinaryIO], None] | None = None,
) -> Path:
    """Write a view of datasets or views and return its folder.

    Args:
        out: folder for the view; it must not exist.
        parents: the datasets, or views of datasets, in order.
        masks: which documents of each shard to keep, shape (num_documents,) each, for the shards of
            all parents in order. Documents that a parent, as a view, leaves out stay out.
        question: how they were chosen, in words.
        note: called before the masks are made, with a file for what they find, `matches.jsonl`.

    Raises:
        UserError: the parents do not fit together, or no document is chosen.
        OutputConflictError: `out` exists.
    """
    folder = output_path(out, "the view")
    if os.path.lexists(folder):
        hint = "choose another name, or remove it"
        raise OutputConflictError(
            "the folder of the view already exists", where=str(folder), hint=hint
        )
    require_alike(parents)
    with storage_errors("write the view", folder), temporary_folder(folder) as work:
        writer = _Writer(work / SELECTION_NAME, parents)
        if note is None:
            writer.write(iter(masks))
        else:
            with (work / MATCHES_NAME).open("xb") as file:
                note(file)
                writer.write(iter(masks))
            fsync_path(work / MATCHES_NAME)
        view = writer.finish(folder, question)
        if note is not None:
            view = msgspec.structs.replace(view, matches=_entry(work / MATCHES_NAME))
        write_sealed(work / VIEW_NAME, view)
        fsync_path(work)
        rename_flushed(work, folder)
    return folder


def require_alike(parents: Sequence[Dataset]) -> None:
    """Raise a UserError if datasets cannot be in one view: their tokens mean different things.

    The message lists what differs.
    """
    if not parents:
        raise UserError("a view needs a dataset", hint="give at least one")
    for parent in parents[1:]:
        lines = differences(parents[0].manifest, parent.manifest)
        if lines:
            raise UserError(
                "these datasets cannot be in one view",
                where=f"{parents[0].location} and {parent.location}",
                why="\n       ".join(lines),
                hint="build them with the same tokenizer and options, or mix them: tokenmill.mix",
            )
    for parent in parents:
        if parent.origin is not None:
            hint = f"copy it first: tokenmill cp {parent.location} DIR"
            raise UserError(
                "a view needs datasets on this machine", where=parent.location, hint=hint
            )


class _Writer:
    """Writes the bits of shards one after the other, and counts what they choose."""

    def __init__(self, path: Path, parents: Sequence[Dataset]) -> None:
        self._path, self._parents = path, parents
        self._shards: list[SelectedShard] = []
        self._sources: list[list[int]] = []
        """Documents and tokens of each source, of all parents in order."""

    def write(self, masks: Iterator[BoolArray]) -> None:
        """Write what is chosen of every shard."""
        with self._path.open("xb") as file:
            for parent in self._parents:
                first = len(self._sources)
                self._sources += [[0, 0] for _ in parent.manifest.sources]
                for shard in parent.shards:
                    mask = next(masks)
                    chosen = mask if shard.selected is None else mask & shard.selected
                    numbers = parent.source_numbers(shard)
                    file.write(self._add(shard, chosen, first + numbers))
                    shard.release()
            next(masks, None)  # what makes them may have something to say at the end
            file.flush()
            os.fsync(file.fileno())

    def _add(self, shard: Shard, chosen: BoolArray, numbers: Int32Array) -> bytes:
        """Count what is chosen of a shard by source, and return its compressed bits."""
        data = zlib.compress(np.packbits(chosen).tobytes())
        lengths = np.where(chosen, shard.lengths, 0)
        most = int(numbers.max(initial=0)) + 1
        documents = np.bincount(numbers, chosen, most).astype(np.int64).tolist()
        tokens = np.bincount(numbers, lengths, most).astype(np.int64).tolist()
        for number in np.unique(numbers).tolist():
            self._sources[number][0] += documents[number]
            self._sources[number][1] += tokens[number]
        entry = SelectedShard(
            documents=int(chosen.sum()), tokens=int(lengths.sum()), bytes=len(data)
        )
        self._shards.append(entry)
        return data

    def finish(self, folder: Path, question: Sequence[str]) -> ViewManifest:
        """The manifest of the view.

        Raises:
            UserError: no document is chosen.
        """
        if not any(shard.documents for shard in self._shards):
            why = "; ".join(question)
            hint = "ask for less, or look at the documents with tokenmill inspect"
            raise UserError("no document is chosen", where=str(folder), why=why, hint=hint)
        parents = [root for parent in self._parents for root in parent.roots]
        entries = [
            ParentEntry(
                place=os.path.relpath(parent.folder, folder), dataset_id=parent.manifest.dataset_id
            )
            for parent in parents
        ]
        entry = _entry(self._path)
        return ViewManifest(
            view_id=view_id(entries, entry.xxh3_128),
            parents=entries,
            question=[*(line for parent in self._parents for line in parent.question), *question],
            sources=[SelectedEntry(documents=d, tokens=t) for d, t in self._sources],
            shards=self._shards,
            file=entry,
        )


def _entry(path: Path) -> FileEntry:
    return FileEntry(name=path.name, bytes=path.stat().st_size, xxh3_128=file_digest(path))
