"""Choose documents by the ids in a file, or by a view: those that it has, or the others."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import BoolArray, Int32Array
from tokenmill.core.values import counted
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.words.table import WordTable
from tokenmill.store.dataset import Dataset, Shard, is_dataset
from tokenmill.store.selecting.lines import read_lines
from tokenmill.store.selecting.places import Place

if TYPE_CHECKING:
    import pyarrow as pa

MOST_NAMED = 10
"""Unknown ids that are named; the others are counted."""


@dataclass(frozen=True, slots=True)
class UnknownIds:
    """The ids of a file that no document has."""

    file: str
    ids: int
    """How many ids the file has."""
    unknown: int
    first: list[str]
    """The first of the unknown ones."""

    def __str__(self) -> str:
        more = ", ..." if self.unknown > len(self.first) else ""
        some = f"{self.unknown:,} of {counted(self.ids, 'id')} of {self.file}"
        return f"{some}: {', '.join(self.first)}{more}"


def by_name(name: str, *, keeps: bool) -> Ids | InView:
    """Return what keeps or leaves out the documents of a view, or those with the ids in a file."""
    path = local_path(name, "a file of ids or a view")
    return InView(path, keeps=keeps) if is_dataset(path) else Ids(name, keeps=keeps)


class Ids:
    """Keeps the documents with the ids in a file, or those without.

    Raises:
        UserError: the file cannot be read, or has no ids.
    """

    def __init__(self, file: str, *, keeps: bool) -> None:
        self._file, self._keeps = file, keeps
        self._table = WordTable()
        for _, lines in read_lines(file, "a file of ids"):
            ids = [line for line in lines if line.strip()]
            edges = offsets_from_lengths([len(name) for name in ids])
            self._table.add(np.frombuffer(b"".join(ids), np.uint8), edges)
        if not len(self._table):
            raise UserError("a file of ids is empty", where=file, hint="write one id a line")
        self._found = np.zeros(len(self._table), np.bool_)
        self._any_ids = False
        """Whether any document has an id."""
        names = f"{counted(len(self._table), 'id')} in {file}"
        self.question = f"{'only' if keeps else 'without'} the {names}"

    def mask(self, place: Place, _: BoolArray) -> BoolArray:
        """Return which documents of a shard to keep, shape (num_documents,)."""
        column = place.shard.documents(["id"]).column("id")
        parts = [self._numbers(chunk) for chunk in column.chunks]
        numbers = np.concatenate([*parts, np.empty(0, np.int32)])
        self._any_ids = self._any_ids or column.null_count < len(column)
        has_id = numbers >= 0
        self._found[numbers[has_id & place.selected]] = True
        return has_id if self._keeps else ~has_id

    def _numbers(self, ids: pa.StringArray) -> Int32Array:
        """Return the number of each id in the table, shape (n,); -1 if the file lacks it."""
        _, offsets, data = ids.buffers()
        edges = np.frombuffer(offsets, np.int32, len(ids) + 1, 4 * ids.offset).astype(np.int64)
        content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
        numbers = self._table.known_numbers(content, edges)
        if ids.null_count:
            numbers[ids.is_null().to_numpy(zero_copy_only=False)] = -1
        return numbers

    def finish(self) -> None:
        """Raise a UserError if no document has one of the ids."""
        if not self._any_ids:
            raise UserError(
                "documents cannot be chosen by id",
                where=self._file,
                why="no document has an id",
                hint="build the datasets again with --id-field FIELD",
            )
        if not self._found.any():
            raise UserError(
                "no document has one of these ids",
                where=self._file,
                why=str(self.unknown()),
                hint="tokenmill inspect DATASET --document 0 shows what ids look like",
            )

    def unknown(self) -> UnknownIds | None:
        """Return the ids that no document has; None if there are none."""
        places = np.flatnonzero(~self._found)
        if not len(places):
            return None
        data, edges = self._table.words(places[:MOST_NAMED])
        first = [data[a:b].tobytes().decode() for a, b in pairwise(edges.tolist())]
        return UnknownIds(self._file, len(self._found), len(places), first)


class InView:
    """Keeps the documents that a view or a dataset has, or those that it lacks."""

    def __init__(self, folder: Path, *, keeps: bool) -> None:
        view = Dataset(folder)
        self._view, self._keeps, self._any = view, keeps, False
        self._shards = {_key(view, shard): shard for shard in view.shards if shard.num_documents}
        names = f"{counted(view.num_documents, 'document')} of {folder}"
        self.question = f"{'only' if keeps else 'without'} the {names}"

    def mask(self, place: Place, asked: BoolArray) -> BoolArray:
        """Return which documents of a shard to keep, shape (num_documents,)."""
        count = place.shard.entry.documents
        found = np.zeros(count, np.bool_)
        shard = self._shards.get(_key(place.dataset, place.shard)) if count else None
        if shard is not None:
            found[shard.chosen] = True
        self._any = self._any or bool((found & asked).any())
        return found if self._keeps else ~found

    def finish(self) -> None:
        """Raise a UserError if the view and the datasets have no document in common."""
        if not self._any:
            raise UserError(
                "the view has no document of these datasets",
                where=self._view.location,
                why="it takes documents from "
                + ", ".join(root.location for root in self._view.roots),
            )


def _key(dataset: Dataset, shard: Shard) -> tuple[str, str]:
    """The dataset that a shard belongs to, and the name of its tokens."""
    ids = {root.folder: root.manifest.dataset_id for root in dataset.roots}
    return ids[shard.folder], shard.entry.files[0].name
