"""Which documents of a shard are packed, how often, and of what kind they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UserError
from tokenmill.pack.options import PackOptions
from tokenmill.permutation import keyed_hash
from tokenmill.records import Int32Array, Int64Array
from tokenmill.store.dataset import Dataset, Shard

if TYPE_CHECKING:
    import pyarrow as pa

WEIGHT_SEED = 0x7765_6967_6874


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice in one shard."""

    documents: Int32Array
    """Shape (n,): indices in the shard, in order, repeated by their weight."""
    kinds: Int32Array | None
    """Shape (num_documents,)."""
    sources: Int32Array
    """Shape (num_documents,)."""
    left_out: dict[str, npt.NDArray[np.bool_]]
    """Documents that were not chosen, shape (num_documents,) each, by reason."""


@dataclass(slots=True)
class Selection:
    """Chooses documents by the columns of the documents table; reads only those it needs."""

    dataset: Dataset
    options: PackOptions
    subset: str | None = field(init=False)
    weights: dict[str, float] = field(init=False)
    kind_numbers: dict[str | None, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        policies = self.dataset.manifest.policies.get("read", {})
        default = "train" if policies.get("validation") else None
        self.subset = self.options.subset or default
        self.weights = parse_weights(self.options.weight)

    def choose(self, shard: Shard, first_document: int) -> Chosen:
        """The documents of a shard that are packed; `first_document` is its first one's number."""
        count = shard.entry.documents
        sources = [extent.source for extent in shard.entry.extents]
        wanted = {self.options.separate_by, self.options.weight_by} - {None}
        if self.subset is not None:
            wanted.add("subset")
        if len(set(sources)) > 1:
            wanted.add("source")
        table = _columns(shard, sorted(str(name) for name in wanted))
        repeats = np.ones(count, np.int64)
        left_out: dict[str, npt.NDArray[np.bool_]] = {}
        if self.subset is not None:
            other = np.array([value != self.subset for value in _values(table, "subset")], np.bool_)
            left_out["other subset"] = other
            repeats[other] = 0
        if self.options.weight_by is not None:
            copies = self._copies(_values(table, self.options.weight_by), first_document)
            left_out["weight"] = (copies == 0) & (repeats > 0)
            repeats *= copies
        kinds = None
        if self.options.separate_by is not None:
            kinds = self._numbered(_values(table, self.options.separate_by))
        return Chosen(
            documents=np.repeat(np.arange(count, dtype=np.int32), repeats),
            kinds=kinds,
            sources=_source_numbers(table, sources, count),
            left_out=left_out,
        )

    def _copies(self, values: list[str | None], first_document: int) -> Int64Array:
        """How often each document appears: its weight, rounded up or down by its number."""
        weights = np.array([self.weights.get(str(value), 1.0) for value in values])
        numbers = np.arange(first_document, first_document + len(values), dtype=np.uint64)
        chance = keyed_hash(numbers, WEIGHT_SEED) / 2.0**64
        whole = np.floor(weights)
        copies: Int64Array = (whole + (chance < weights - whole)).astype(np.int64)
        return copies

    def _numbered(self, values: list[str | None]) -> Int32Array:
        numbers = self.kind_numbers
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)


def parse_weights(assignments: list[str]) -> dict[str, float]:
    """Weights by value, from "value=weight".

    Raises:
        UserError: one is something else.
    """
    weights: dict[str, float] = {}
    for assignment in assignments:
        value, _, weight = assignment.rpartition("=")
        try:
            weights[value] = float(weight)
        except ValueError:
            weights[value] = -1.0
        if not (value and 0 <= weights[value] < 1e6):
            raise UserError("a weight is VALUE=WEIGHT, at least 0", why=f"got {assignment!r}")
    return weights


def _columns(shard: Shard, names: list[str]) -> pa.Table | None:
    if not names:
        return None
    import pyarrow.parquet as pq

    path = shard.path("parquet")
    known = pq.read_schema(path).names
    found = {name: f"column.{name}" if name not in known else name for name in names}
    for name, column in found.items():
        if column not in known:
            raise UserError(
                f"the documents table has no column {name!r}",
                where=str(path),
                why=f"it has {', '.join(known)}",
                hint="build the dataset with --keep to have further columns",
            )
    table = pq.read_table(path, columns=list(found.values()))
    return table.rename_columns({column: name for name, column in found.items()})


def _values(table: pa.Table | None, name: str) -> list[str | None]:
    values: list[str | None] = [] if table is None else table.column(name).to_pylist()
    return values


def _source_numbers(table: pa.Table | None, sources: list[int], count: int) -> Int32Array:
    if len(set(sources)) <= 1 or table is None:
        return np.full(count, sources[0] if sources else 0, np.int32)
    column = table.column("source").combine_chunks()
    numbers: Int32Array = column.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return numbers
