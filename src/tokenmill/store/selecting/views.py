"""Choose documents by a view: those that it has, or the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import BoolArray
from tokenmill.core.values import counted
from tokenmill.store.dataset import Dataset, Shard, is_dataset
from tokenmill.store.selecting.ids import Ids
from tokenmill.store.selecting.places import Place


def by_name(name: str, *, keeps: bool) -> Ids | InView:
    """Return what keeps or leaves out the documents of a view, or those with the ids in a file."""
    path = local_path(name, "a file of ids or a view")
    return InView(path, keeps=keeps) if is_dataset(path) else Ids(name, keeps=keeps)


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
