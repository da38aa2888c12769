"""Choose which documents of a shard are packed, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.packing.options import PackOptions
from tokenmill.store.dataset import Dataset, Shard

WEIGHT_SEED = 0x7765_6967_6874


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen documents of one shard."""

    copies: list[Int32Array]
    """Indices in the shard, in order; then those that appear again, in order; ..."""
    kinds: Int32Array | None
    """Shape (num_documents,)."""
    sources: Int32Array
    """Shape (num_documents,)."""
    left_out: dict[str, npt.NDArray[np.bool_]]
    """Masks of the documents that were left out, by reason, shape (num_documents,) each."""

    @property
    def documents(self) -> Int32Array:
        """All of `copies`, one after the other, shape (n,)."""
        return np.concatenate([*self.copies, np.empty(0, np.int32)])


@dataclass(slots=True)
class DocumentChoice:
    """Chooses documents by columns of the documents table. Reads only the columns it needs."""

    dataset: Dataset
    options: PackOptions
    subset: str | None = field(init=False)
    kind_numbers: dict[Any, int] = field(default_factory=dict)
    missing_values: set[str] = field(init=False)
    """Values with a weight that no document had so far."""

    def __post_init__(self) -> None:
        self.subset = None if self.options.subset == "all" else self.options.subset
        self.missing_values = set(self.options.weights)

    def choose(self, shard: Shard, first_document: int) -> Chosen:
        """Choose documents of a shard that begins at `first_document`."""
        count, chosen = shard.entry.documents, shard.chosen
        wanted = {self.options.separate_by, self.options.weight_by} - {None}
        if self.subset is not None:
            wanted.add("subset")
        columns = _columns(shard, {str(name) for name in wanted}, chosen)
        repeats = np.zeros(count, np.int64)
        repeats[chosen] = 1
        left_out: dict[str, npt.NDArray[np.bool_]] = {}
        if self.subset is not None:
            other = np.zeros(count, np.bool_)
            other[chosen] = [value != self.subset for value in columns["subset"]]
            left_out["other subset"] = other
            repeats[other] = 0
        if self.options.weight_by is not None:
            copies = np.ones(count, np.int64)
            copies[chosen] = self._copies(columns[self.options.weight_by], first_document + chosen)
            left_out["weight"] = (copies == 0) & (repeats > 0)
            repeats *= copies
        kinds = None
        if self.options.separate_by is not None:
            kinds = np.zeros(count, np.int32)
            kinds[chosen] = self._numbered(columns[self.options.separate_by])
        rounds = range(int(repeats.max(initial=0)))
        return Chosen(
            copies=[np.flatnonzero(repeats > number).astype(np.int32) for number in rounds],
            kinds=kinds,
            sources=self.dataset.source_numbers(shard),
            left_out=left_out,
        )

    def _copies(self, values: list[Any], documents: Int64Array) -> Int64Array:
        """How often each document appears: its weight, rounded up or down by its number."""
        by_value = self.options.weights
        if self.missing_values:
            self.missing_values -= set(map(str, set(values)))
        weights = np.array(
            [1.0 if value is None else by_value.get(str(value), 1.0) for value in values]
        )
        chance = keyed_hash(documents.astype(np.uint64), WEIGHT_SEED) / 2.0**64
        whole = np.floor(weights)
        copies: Int64Array = (whole + (chance < weights - whole)).astype(np.int64)
        return copies

    def _numbered(self, values: list[Any]) -> Int32Array:
        numbers = self.kind_numbers
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)


def _columns(shard: Shard, names: set[str], chosen: Int64Array) -> dict[str, list[Any]]:
    """Columns of the documents table by the names that users know, for the chosen documents."""
    if not names or not len(chosen):
        return {name: [] for name in names}
    table = shard.documents([each for name in names for each in (name, f"column.{name}")])
    found = {name: name if name in table.column_names else f"column.{name}" for name in names}
    for name, column in found.items():
        if column not in table.column_names or name == "no_loss":
            usable = [each for each in shard.documents().column_names if each != "no_loss"]
            raise UserError(
                f"the documents table has no column {name!r} to choose by",
                where=str(shard.path("parquet")),
                why=f"the columns are {', '.join(usable)}",
                hint="build the dataset with --keep to add columns",
            )
    if len(chosen) < table.num_rows:
        table = table.take(chosen)
    return {name: table.column(column).to_pylist() for name, column in found.items()}
