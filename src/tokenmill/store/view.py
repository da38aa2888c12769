"""Views: documents of one or more datasets, chosen and put in order without copying a token.

    view.json       written last, with its own digest: the parents and their ids, what was asked,
                    and how many documents and tokens each shard keeps
    selection.bin   one bit for each document of each shard, in order, each shard's bits compressed
                    (zlib) on their own
    plans/          plans of the view, as in a dataset

A view has the shards of its parents, one parent after the other. Documents keep the numbers that
they have there, and those that are not chosen have none of the view's tokens. So plans, states and
provenance of a view work like those of a dataset. A view of a view names the datasets behind it.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.core.paths import output_path
from tokenmill.core.records import BoolArray, Int32Array
from tokenmill.store.canonical import canonical_json, read_sealed, write_sealed
from tokenmill.store.digests import file_digest
from tokenmill.store.files import fsync_path, rename_flushed, storage_errors, temporary_folder
from tokenmill.store.manifest import Count, Counts, FileEntry, Manifest, ShardEntry, SourceEntry

if TYPE_CHECKING:
    from tokenmill.store.dataset import Dataset, Shard

VIEW_NAME = "view.json"
SELECTION_NAME = "selection.bin"
VIEW_FORMAT = "tokenmill-view"
VIEW_VERSION = 1


class ParentEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that a view takes documents from."""

    place: str
    """Its folder, relative to that of the view."""
    dataset_id: str


class SelectedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a view keeps of one shard or of one source."""

    documents: Count
    tokens: Count


class SelectedShard(SelectedEntry, frozen=True, kw_only=True):
    """What a view keeps of one shard, and where its bits are."""

    bytes: Count
    """Size of its compressed bits in `selection.bin`."""


class ViewManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of view.json."""

    format: str = VIEW_FORMAT
    format_version: int = VIEW_VERSION
    view_id: str
    """Digest of the parents' ids and of the selection, in 32 hexadecimal digits."""
    parents: list[ParentEntry]
    question: list[str]
    """What was asked, in words: how the documents were chosen, step by step."""
    sources: list[SelectedEntry]
    """What is kept of each source, of all parents in order."""
    shards: list[SelectedShard]
    """What is kept of each shard, of all parents in order."""
    file: FileEntry
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen documents of the shards of a view."""

    path: Path
    entries: Sequence[SelectedShard]
    counts: Sequence[int]
    """All documents of each shard, chosen or not."""

    def mask(self, number: int) -> BoolArray:
        """Which documents of a shard are chosen, shape (num_documents,).

        Raises:
            VerificationError: the file does not hold what the view says.
        """
        entry, count = self.entries[number], self.counts[number]
        start = sum(each.bytes for each in self.entries[:number])
        size = -(-count // 8)
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                bits = zlib.decompressobj().decompress(file.read(entry.bytes), size + 1)
        except (OSError, zlib.error) as error:
            raise damaged_view(self.path, str(error)) from error
        found = np.unpackbits(np.frombuffer(bits, np.uint8), count=min(count, 8 * len(bits)))
        if len(bits) != size or int(found.sum()) != entry.documents:
            raise damaged_view(self.path, f"the bits of shard {number} are not those of the view")
        return found.astype(np.bool_)


def damaged_view(path: Path, why: str) -> VerificationError:
    """The error for a view that contradicts itself or its parents."""
    hint = "make the view again: tokenmill select"
    return VerificationError("a view is damaged", where=str(path), why=why, hint=hint)


def read_view(folder: Path) -> ViewManifest:
    """Read a view and compare the digest of its selection.

    Raises:
        UserError: it has another version of the format.
        VerificationError: it is damaged.
    """
    view = read_sealed(folder / VIEW_NAME, ViewManifest)
    path = folder / SELECTION_NAME
    known = FileEntry(name=SELECTION_NAME, bytes=view.file.bytes, xxh3_128=view.file.xxh3_128)
    if view.file != known or not path.is_file() or path.stat().st_size != known.bytes:
        raise damaged_view(path, "the selection is missing, or has another size")
    if file_digest(path) != known.xxh3_128:
        raise damaged_view(path, "the digest of the selection differs")
    if sum(shard.bytes for shard in view.shards) != known.bytes or not view.parents:
        raise damaged_view(folder / VIEW_NAME, "its shards do not make up the selection")
    return view


def joined_manifest(parents: Sequence[Manifest], view: ViewManifest, where: Path) -> Manifest:
    """What the manifest of a view would be: the shards of its parents, and its own counts.

    Raises:
        VerificationError: the view has other shards or sources than its parents.
    """
    first = parents[0]
    shards: list[ShardEntry] = []
    sources: list[SourceEntry] = []
    for parent in parents:
        shards += (_renumbered(shard, len(sources)) for shard in parent.shards)
        sources += parent.sources
    kept = (len(view.shards), len(view.sources))
    if kept != (len(shards), len(sources)):
        raise damaged_view(where / VIEW_NAME, "its parents have other shards or sources")
    counted = [_counted(*pair) for pair in zip(sources, view.sources, strict=True)]
    totals = Counts()
    for source in counted:
        totals.add(source.counts)
    return msgspec.structs.replace(
        first,
        dataset_id=view.view_id,
        policies=_joined_policies(parents),
        totals=totals,
        sources=counted,
        shards=shards,
        rejected=[],
    )


def _renumbered(shard: ShardEntry, first_source: int) -> ShardEntry:
    extents = [
        msgspec.structs.replace(extent, source=extent.source + first_source)
        for extent in shard.extents
    ]
    return msgspec.structs.replace(shard, extents=extents)


def _counted(source: SourceEntry, kept: SelectedEntry) -> SourceEntry:
    """A source with the counts of a view; bytes are in proportion to tokens."""
    counts = source.counts
    num_bytes = round(counts.document_bytes * kept.tokens / max(counts.tokens, 1))
    return msgspec.structs.replace(
        source,
        counts=Counts(
            records=kept.documents,
            record_bytes=num_bytes,
            documents=kept.documents,
            document_bytes=num_bytes,
            tokens=kept.tokens,
        ),
    )


def _joined_policies(parents: Sequence[Manifest]) -> dict[str, Any]:
    """The policies of the first parent; a validation subset is that of any parent."""
    policies = parents[0].policies
    shares = [parent.policies["read"].get("validation", 0.0) for parent in parents]
    if any(shares):
        policies = {**policies, "read": {**policies["read"], "validation": max(shares)}}
    return policies


def write_view(
    out: str | Path,
    parents: Sequence[Dataset],
    masks: Iterable[BoolArray],
    question: Sequence[str],
) -> Path:
    """Write a view of datasets or views and return its folder.

    Args:
        out: folder for the view; it must not exist.
        parents: the datasets, or views of datasets, in order.
        masks: which documents of each shard to keep, shape (num_documents,) each, for the shards of
            all parents in order. Documents that a parent, as a view, leaves out stay out.
        question: how they were chosen, in words.

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
        writer.write(iter(masks))
        write_sealed(work / VIEW_NAME, writer.finish(folder, question))
        fsync_path(work)
        rename_flushed(work, folder)
    return folder


def require_alike(parents: Sequence[Dataset]) -> None:
    """Raise a UserError if datasets cannot be in one view: their tokens mean different things.

    The message lists what differs.
    """
    if not parents:
        raise UserError("a view needs a dataset", hint="give at least one")
    first = _meaning(parents[0])
    for parent in parents[1:]:
        other = _meaning(parent)
        lines = [
            f"{name}: {first[name]} and {other[name]}"
            for name in first
            if first[name] != other[name]
        ]
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


def _meaning(dataset: Dataset) -> dict[str, object]:
    """What decides how tokens are read, by the names that messages use."""
    tokenizer, policies = dataset.manifest.tokenizer, dataset.policies
    return {
        "tokenizer": tokenizer.sha256,
        "largest id": tokenizer.largest_id,
        "tokens that begin a document": tokenizer.prefix_ids,
        "token that ends a document": tokenizer.eos_id,
        "padding": tokenizer.pad_id,
        "special tokens in texts": policies.encode.special_tokens,
        "ranges without loss": policies.has_no_loss,
    }


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
            file.flush()
            os.fsync(file.fileno())

    def _add(self, shard: Shard, chosen: BoolArray, numbers: Int32Array) -> bytes:
        """Count what is chosen of a shard by source, and return its compressed bits."""
        data = zlib.compress(np.packbits(chosen).tobytes())
        lengths = np.where(chosen, shard.read_lengths(), 0)
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
        digest = file_digest(self._path)
        ids = [entry.dataset_id for entry in entries]
        return ViewManifest(
            view_id=xxhash.xxh3_128_hexdigest(canonical_json([ids, digest])),
            parents=entries,
            question=[*(line for parent in self._parents for line in parent.question), *question],
            sources=[SelectedEntry(documents=d, tokens=t) for d, t in self._sources],
            shards=self._shards,
            file=FileEntry(name=SELECTION_NAME, bytes=self._path.stat().st_size, xxh3_128=digest),
        )
