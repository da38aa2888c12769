"""Write the documents of a view as a dataset of its own. The folder appears whole, or not at all.

Each shard of which the view keeps documents becomes one shard, through the writer that builds use.
`run.json` names the view instead of sources: the sources hold documents that the copy lacks.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import OutputConflictError
from tokenmill.core.installed import installed_version
from tokenmill.core.paths import output_path
from tokenmill.core.records import Advance, Int64Array
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.digests import require_digest
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.files import fsync_path, rename_flushed, storage_errors, temporary_folder
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import (
    MANIFEST_NAME,
    RUN_NAME,
    Attempt,
    Manifest,
    Run,
    ShardEntry,
    dataset_id,
    read_manifest,
    time_now,
    write_manifest,
)
from tokenmill.store.shard import ShardLayout, ShardWriter

DOCUMENTS_AT_ONCE = 1 << 13
TOKENS_AT_ONCE = 1 << 22
VIEW = "view"
"""The key of the view's id in the identity of `run.json`."""


def write_out(view: Dataset, out: str | Path, advance: Advance) -> tuple[Manifest, bool]:
    """Write the documents of a view to a folder; returns its manifest, and whether it was there.

    Raises:
        OutputConflictError: the folder holds something else.
        VerificationError: a file of a dataset of the view is damaged.
        StorageError: a file cannot be read or written.
    """
    folder = output_path(out, "the destination")
    if (folder / MANIFEST_NAME).is_file() and is_copy_of(view, folder):
        return read_manifest(folder), True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what, hint = "the destination is not empty", "choose another destination"
        raise OutputConflictError(what, where=str(folder), hint=hint)
    with storage_errors("write the copy", folder), temporary_folder(folder) as work:
        writer = _Writer(view, work, advance)
        manifest = writer.write()
        write_sealed(work / RUN_NAME, _run(view))
        write_manifest(work, manifest)
        for path in (*work.rglob("*"), work):
            fsync_path(path)
        rename_flushed(work, folder)
    return manifest, False


def is_copy_of(view: Dataset, folder: Path) -> bool:
    """Whether a dataset was written from this view."""
    path = folder / RUN_NAME
    if not path.is_file():
        return False
    return read_sealed(path, Run).identity.get(VIEW) == view.manifest.dataset_id


def _run(view: Dataset) -> Run:
    """The record of how the copy was made; audits are those of the datasets of the view."""
    runs = [read_sealed(root.folder / RUN_NAME, Run) for root in view.roots]
    return Run(
        recipe={},
        identity={VIEW: view.manifest.dataset_id, "question": view.question},
        inputs=[str(root.folder.absolute()) for root in view.roots],
        host=platform.node(),
        versions={"tokenmill": installed_version("tokenmill")},
        engine=", ".join(dict.fromkeys(run.engine for run in runs)),
        audited_documents=sum(run.audited_documents for run in runs),
        calibrated_texts=0,
        attempts=[
            Attempt(
                started=time_now(),
                workers=1,
                memory_bytes=0,
                max_bad=0.0,
                on_bad_file="stop",
            )
        ],
        seconds={},
        peak_bytes=0,
    )


class _Writer:
    """Writes the shards of a view one after the other."""

    def __init__(self, view: Dataset, folder: Path, advance: Advance) -> None:
        self._view, self._folder, self._advance = view, folder, advance
        policies = view.policies
        self._layout = ShardLayout(
            view.token_dtype, tuple(policies.read.keep), policies.has_no_loss
        )
        self._names = [source.name for source in view.manifest.sources]
        self._shards: list[ShardEntry] = []

    def write(self) -> Manifest:
        """Write all files but the JSON files that describe the dataset."""
        manifest, parts = self._view.manifest, self._folder / "parts"
        for name in ("parts", "tokens", "documents", "tokenizer"):
            (self._folder / name).mkdir()
        for file in manifest.tokenizer.files:
            path = self._view.roots[0].folder / file.name
            require_digest(path, file.xxh3_128)
            shutil.copyfile(path, self._folder / file.name)
        done = 0
        for shard in self._view.shards:
            if shard.num_documents:
                self._write_shard(shard, parts)
            shard.release()
            done += shard.num_tokens
            self._advance("copying", done, self._view.num_tokens)
        parts.rmdir()
        shards = self._shards
        return msgspec.structs.replace(
            manifest,
            dataset_id=dataset_id(shards, manifest.tokenizer, manifest.policies),
            shards=shards,
        )

    def _write_shard(self, shard: Shard, parts: Path) -> None:
        for part, file in zip(("bin", "idx", "", "parquet"), shard.entry.files, strict=True):
            if part:
                require_digest(shard.path(part), file.xxh3_128)
        stem = f"{len(self._shards):08d}-000000"
        writer = ShardWriter(parts, stem, self._layout, self._names)
        try:
            for rows, documents in self._rows(shard):
                writer.append(rows, _tokens(shard, documents), shard.lengths[documents])
            entries = writer.close()
        except BaseException:
            writer.discard()
            raise
        files = []
        for entry in entries:
            name = part_name(stem, entry.name)
            (parts / f"{stem}.{entry.name}").replace(self._folder / name)
            files.append(msgspec.structs.replace(entry, name=name))
        self._shards.append(
            ShardEntry(
                documents=shard.num_documents,
                tokens=shard.num_tokens,
                extents=shard.entry.extents,
                files=files,
            )
        )

    def _rows(self, shard: Shard) -> Iterator[tuple[DocumentRows, Int64Array]]:
        """Rows of the documents table in batches, and the documents of each, shape (n,)."""
        table, chosen = shard.documents(), shard.chosen
        sources = self._view.source_numbers(shard)
        for start, stop in _batches(shard.lengths[chosen]):
            documents = chosen[start:stop]
            columns: dict[str, list[Any]] = table.take(documents).to_pydict()
            nothing = [None] * len(documents)
            spans = columns.get("no_loss", []) if self._layout.has_no_loss else []
            rows = DocumentRows(
                sources=sources[documents],
                positions=np.array(columns["position"], np.int64),
                ids=columns.get("id", nothing),
                in_validation=np.array([each == "validation" for each in columns["subset"]]),
                columns={
                    name: columns.get(f"column.{name}", nothing) for name in self._layout.keep
                },
                no_loss=[[(span["start"], span["stop"]) for span in each or ()] for each in spans],
            )
            yield rows, documents


def _batches(lengths: Int64Array) -> Iterator[tuple[int, int]]:
    """Ranges of consecutive documents that are few and have few tokens."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        most = TOKENS_AT_ONCE + (int(ends[start - 1]) if start else 0)
        stop = max(int(np.searchsorted(ends, most, side="right")), start + 1)
        stop = min(stop, start + DOCUMENTS_AT_ONCE)
        yield start, stop
        start = stop


def _tokens(shard: Shard, documents: Int64Array) -> np.ndarray:
    """The ids of documents one after the other; neighbours are read at once."""
    edges = np.flatnonzero(np.diff(documents) != 1) + 1
    firsts = documents[np.concatenate([[0], edges])]
    lasts = documents[np.concatenate([edges - 1, [len(documents) - 1]])]
    starts, stops = shard.offsets[firsts], shard.offsets[lasts + 1]
    pieces = zip(starts.tolist(), stops.tolist(), strict=True)
    return np.concatenate([shard.ids[start:stop] for start, stop in pieces])
