"""Opened datasets: memory-mapped tokens, boundaries and documents."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.core.paths import local_path, refuse_non_utf8
from tokenmill.core.records import BoolArray, Int32Array, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.store.canonical import wrong_size
from tokenmill.store.documents_table import damaged_table, read_documents
from tokenmill.store.files import sizes_inside
from tokenmill.store.layout import HEADER, read_index_header, unpack_index
from tokenmill.store.manifest import MANIFEST_NAME, Manifest, ShardEntry, read_manifest
from tokenmill.store.manifest_checks import SHARD_PARTS, check_manifest
from tokenmill.store.policies import Policies
from tokenmill.store.view_manifest import (
    SELECTION_NAME,
    VIEW_NAME,
    ParentEntry,
    Selection,
    damaged_view,
    joined_manifest,
    read_view,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from tokenmill.store.remote.origin import Origin


class Shard:
    """One shard of a dataset: memory-mapped token ids and the boundaries of its documents."""

    def __init__(
        self,
        folder: Path,
        entry: ShardEntry,
        dtype: np.dtype[np.integer],
        origin: Origin | None = None,
        selection: tuple[Selection, int] | None = None,
    ) -> None:
        self.entry = entry
        self._selection = selection
        kept = entry if selection is None else selection[0].entries[selection[1]]
        self.num_documents, self.num_tokens = kept.documents, kept.tokens
        """Of the documents in the view, or of all if this is no view."""
        self.folder = folder
        self._dtype = dtype
        self._origin = origin

    def path(self, part: str) -> Path:
        """Return the path of a part: bin, idx, xxh3 or parquet.

        For a dataset in a bucket, parts other than tokens are downloaded first.
        """
        file = self.entry.files[SHARD_PARTS.index(part)]
        if self._origin is not None and part == "parquet":
            self._origin.obtain([file])
        elif self._origin is not None and part != "bin":
            self._origin.fetcher.obtain(self._origin.index_requests([file]))
        return self.folder / file.name

    @cached_property
    def ids(self) -> npt.NDArray[np.integer]:
        """Token ids of the shard, shape (num_tokens,), as a read-only memory map."""
        if self._origin is not None:
            self._origin.obtain_tokens(self.entry, self.block_digests.tolist())
        return np.memmap(self.path("bin"), self._dtype, mode="r")

    @cached_property
    def lengths(self) -> Int64Array:
        """Shape (num_documents,): tokens of each document, including boundary tokens."""
        return self.read_lengths()

    @cached_property
    def selected(self) -> BoolArray | None:
        """Which documents are in the view, shape (num_documents,); None if this is no view.

        Raises:
            VerificationError: the view is damaged.
        """
        if self._selection is None:
            return None
        selection, number = self._selection
        return selection.mask(number)

    @property
    def chosen(self) -> Int64Array:
        """Indices of the documents in the view, or of all, shape (`self.num_documents`,)."""
        if self.selected is None:
            return np.arange(self.entry.documents)
        return np.flatnonzero(self.selected)

    def selected_lengths(self) -> Int64Array:
        """Return `read_lengths` of the documents in the view, or of all if this is no view."""
        lengths = self.read_lengths()
        return lengths if self.selected is None else lengths[self.selected]

    def read_lengths(self) -> Int64Array:
        """Read and check `lengths` without keeping them, for passes over all shards."""
        path = self.path("idx")
        dtype, lengths = unpack_index(path.read_bytes(), str(path))
        right = dtype == self._dtype and len(lengths) == self.entry.documents
        if not right or int(lengths.sum()) != self.entry.tokens:
            why = "its documents, tokens or dtype differ from the manifest"
            raise VerificationError(
                "a token index belongs to a different shard", where=str(path), why=why
            )
        if (lengths < 1).any():
            why = "it contains a document without tokens"
            raise VerificationError("a token index is damaged", where=str(path), why=why)
        return lengths

    @cached_property
    def index(self) -> npt.NDArray[np.uint8]:
        """The memory-mapped index of the shard: lengths (int32) and byte offsets (int64)."""
        self.check_index_header()
        start = HEADER.size
        return np.memmap(self.path("idx"), np.uint8, "r")[start : start + 12 * self.entry.documents]

    def check_index_header(self) -> None:
        """Raise a VerificationError if the index has other documents or another dtype."""
        path = self.path("idx")
        if read_index_header(path) != (self._dtype, self.entry.documents):
            why = "its documents or its dtype differ from the manifest"
            raise VerificationError(
                "a token index belongs to a different shard", where=str(path), why=why
            )

    def place(self, index: int) -> tuple[int, int]:
        """Return the first token and the number of tokens of a document, from the mapped index."""
        lengths = self.index[: 4 * self.entry.documents].view("<i4")
        starts = self.index[4 * self.entry.documents :].view("<i8")
        return int(starts[index]) // self._dtype.itemsize, int(lengths[index])

    @cached_property
    def block_digests(self) -> npt.NDArray[np.uint64]:
        """xxh3-64 of every 64 KiB block of the tokens, then of the index."""
        path = self.path("xxh3")
        data = path.read_bytes()
        expected = self.entry.files[SHARD_PARTS.index("xxh3")].bytes
        if len(data) != expected:
            raise wrong_size(str(path), expected, len(data))
        return np.frombuffer(data, "<u8")

    @cached_property
    def offsets(self) -> Int64Array:
        """Shape (num_documents + 1,): the index in `ids` at which each document starts."""
        return offsets_from_lengths(self.lengths)

    def release(self) -> None:
        """Release memory, memory maps and open files."""
        for name in ("ids", "index", "block_digests", "lengths", "offsets", "selected"):
            self.__dict__.pop(name, None)

    def document(self, index: int) -> npt.NDArray[np.integer]:
        """Return the token ids of one document, including boundary tokens."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def documents(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the documents table of this shard, or only the `columns` that it has.

        Raises:
            VerificationError: the table is damaged.
        """
        return read_documents(self.path("parquet"), self.entry.documents, columns)


PLAN_NAME = "plan.json"


def folders_at(folder: Path, place: str) -> list[Path]:
    """The folders that a place relative to `folder` can mean: by its name, and by its links."""
    starts = (folder.absolute(), folder.resolve())
    return [Path(os.path.normpath(start / place)) for start in starts]


def place_of(folder: Path, dataset: Dataset, out: Path) -> str | UnsetType:
    """A folder of a dataset, relative to `out`; unset if the dataset is in a bucket.

    Raises:
        UserError: a path is not UTF-8.
    """
    refuse_non_utf8(out.absolute(), "the output folder")
    if dataset.origin is not None:
        return UNSET
    refuse_non_utf8(folder.absolute(), "the dataset")
    return os.path.relpath(folder, out)


def is_dataset(folder: Path) -> bool:
    """Whether a folder holds a dataset or a view."""
    return any((folder / name).is_file() for name in (MANIFEST_NAME, VIEW_NAME))


class Dataset:
    """An opened dataset. Opening checks the manifest and the size of every file in it.

    With an `origin`, the folder is a cache, and missing files are downloaded when needed.
    """

    def __init__(self, folder: str | Path, origin: Origin | None = None) -> None:
        self.folder = local_path(folder, "a dataset")
        self.origin = origin
        self.question: list[str] = []
        """How the documents of a view were chosen, step by step; empty if this is no view."""
        self.roots: list[Dataset] = [self]
        """The datasets that a view takes documents from; of a dataset, itself."""
        self.is_view = origin is None and (self.folder / VIEW_NAME).is_file()
        if self.is_view:
            self._open_view()
        else:
            self._open()
        counts = [shard.entry.documents for shard in self.shards]
        self._first_document = offsets_from_lengths(counts)

    def _open(self) -> None:
        """Read the manifest and check the sizes of files."""
        self.manifest: Manifest = read_manifest(self.folder)
        check_manifest(self.manifest, str(self.folder / MANIFEST_NAME))
        if self.origin is None:
            expected = {file.name: file.bytes for file in self.manifest.files}
            for name, size in sizes_inside(self.folder, expected):
                if size != expected[name]:
                    raise wrong_size(str(self.folder / name), expected[name], size)
        self.token_dtype: np.dtype[np.integer] = np.dtype(self.manifest.token_dtype)
        self.token_dtype = self.token_dtype.newbyteorder("<")
        self.shards = [
            Shard(self.folder, entry, self.token_dtype, self.origin)
            for entry in self.manifest.shards
        ]

    def _open_view(self) -> None:
        """Open the parents of a view, and join their shards."""
        view = read_view(self.folder)
        self.roots = [self._parent(entry) for entry in view.parents]
        self.question = view.question
        manifests = [root.manifest for root in self.roots]
        self.manifest = joined_manifest(manifests, view, self.folder)
        self.token_dtype = self.roots[0].token_dtype
        entries = self.manifest.shards
        counts = [entry.documents for entry in entries]
        selection = Selection(self.folder / SELECTION_NAME, view.shards, counts)
        folders = [root.folder for root in self.roots for _ in root.shards]
        self.shards = [
            Shard(folder, entry, self.token_dtype, selection=(selection, number))
            for number, (folder, entry) in enumerate(zip(folders, entries, strict=True))
        ]

    def _parent(self, entry: ParentEntry) -> Dataset:
        """Open a parent of a view.

        Raises:
            UserError: it is missing.
            VerificationError: it is another dataset.
        """
        folder = None
        found = folders_at(self.folder, entry.place)
        with contextlib.suppress(OSError):  # a name that the file system refuses
            folder = next((each for each in found if is_dataset(each)), None)
        if folder is None:
            why = f"the view takes documents from {found[0]}"
            hint = "put the dataset back, or make the view again: tokenmill select"
            raise UserError(
                "a dataset of the view is missing", where=str(self.folder), why=why, hint=hint
            )
        if (folder / VIEW_NAME).is_file():
            raise damaged_view(self.folder / VIEW_NAME, f"its parent {folder} is a view")
        parent = Dataset(folder)
        if parent.manifest.dataset_id != entry.dataset_id:
            why = f"{folder} is dataset {parent.manifest.dataset_id}; it needs {entry.dataset_id}"
            raise damaged_view(self.folder / VIEW_NAME, why)
        return parent

    def __reduce__(self) -> tuple[type[Dataset], tuple[Path, Origin | None]]:
        """Pickle the location only; another process opens the dataset again."""
        return type(self), (self.folder, self.origin)

    def __repr__(self) -> str:
        counts = f"{self.num_documents:,} documents, {self.num_tokens:,} tokens"
        plans = f"plans {', '.join(self.plans)}" if self.plans else "no plans"
        shards = "1 shard" if len(self.shards) == 1 else f"{len(self.shards):,} shards"
        kind = "View" if self.is_view else "Dataset"
        return f"<{kind} {self.location!r}: {counts} in {shards}, {plans}>"

    @property
    def location(self) -> str:
        """The folder, or scheme://bucket/prefix."""
        return str(self.folder) if self.origin is None else self.origin.location

    @property
    def plans(self) -> list[str]:
        """Names of the plans in the dataset."""
        paths = (self.folder / "plans").glob(f"[!.]*/{PLAN_NAME}")
        return sorted(path.parent.name for path in paths)

    @property
    def policies(self) -> Policies:
        """The options that determined the content of the dataset."""
        return msgspec.convert(self.manifest.policies, Policies)

    @property
    def num_documents(self) -> int:
        """Documents in all shards."""
        return self.manifest.totals.documents

    @property
    def num_tokens(self) -> int:
        """Tokens in all shards, including boundary tokens."""
        return self.manifest.totals.tokens

    @property
    def document_numbers(self) -> range:
        """The numbers that documents can have. In a view, those left out have some of them."""
        return range(int(self._first_document[-1]))

    @property
    def tokenizer_folder(self) -> Path:
        """The folder with the tokenizer: that of the first dataset of a view."""
        return self.roots[0].folder / "tokenizer"

    def source_numbers(self, shard: Shard) -> Int32Array:
        """Return the number of each document's source in the manifest, shape (num_documents,).

        Raises:
            VerificationError: the documents table names a source that the shard does not have.
        """
        numbers = {extent.source for extent in shard.entry.extents}
        if len(numbers) == 1:
            return np.full(shard.entry.documents, numbers.pop(), np.int32)
        known = {self.manifest.sources[number].name: number for number in numbers}
        column = shard.documents(["source"]).column("source").combine_chunks()
        of_names = [known.get(name, -1) for name in column.dictionary.to_pylist()]
        found: Int32Array = np.array(of_names, np.int32)[
            column.indices.to_numpy(zero_copy_only=False)
        ]
        if (found < 0).any():
            why = "it names a source that the manifest does not have"
            raise damaged_table(shard.path("parquet"), why)
        return found

    @property
    def edge_documents(self) -> list[int]:
        """The numbers of the first and the last document, or of the only one."""
        filled = [number for number, shard in enumerate(self.shards) if shard.num_documents]
        edges = [(filled[0], 0), (filled[-1], -1)] if filled else []
        found = [int(self._first_document[at] + self.shards[at].chosen[end]) for at, end in edges]
        return list(dict.fromkeys(found))

    def first_document(self, shard: int) -> int:
        """Return the number of the first document of a shard."""
        return int(self._first_document[shard])

    def locate(self, document: int) -> tuple[Shard, int]:
        """Return the shard that contains a document, and the document's index in that shard.

        Raises:
            UserError: the document does not exist.
        """
        numbers = self.document_numbers
        if document not in numbers:
            why = f"the dataset has {len(numbers)} documents, numbered from 0"
            raise UserError(f"cannot find document {document}", where=str(self.folder), why=why)
        number = int(np.searchsorted(self._first_document, document, side="right")) - 1
        shard, index = self.shards[number], document - int(self._first_document[number])
        if shard.selected is not None and not shard.selected[index]:
            why = f"the view leaves it out: {'; '.join(self.question)}"
            raise UserError(f"cannot find document {document}", where=str(self.folder), why=why)
        return shard, index

    def records(self, documents: Int64Array) -> list[dict[str, Any]]:
        """Return the rows of the documents tables for `documents`, shape (n,), in that order.

        Those of a view also name the `dataset` that the document is in.
        """
        numbers = np.searchsorted(self._first_document, documents, side="right") - 1
        rows: list[dict[str, Any]] = [{}] * len(documents)
        for number in np.unique(numbers).tolist():
            places = np.flatnonzero(numbers == number)
            table = self.shards[number].documents()
            found = table.take(documents[places] - self._first_document[number]).to_pylist()
            home = {"dataset": str(self.shards[number].folder)} if self.is_view else {}
            for place, row in zip(places.tolist(), found, strict=True):
                rows[place] = {**home, **row}
        return rows

    def announce_pass(self) -> None:
        """Start to download the indexes of all shards, for a dataset in a bucket."""
        if self.origin is not None:
            indexes = self.origin.index_requests(shard.entry.files[1] for shard in self.shards)
            self.origin.fetcher.announce(indexes)
