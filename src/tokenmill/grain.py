"""Random access to documents and to packed rows, for Grain and for everything like it.

A source needs no other library: it has a length, and gives a dict of NumPy arrays for an index.

    grain.MapDataset.source(tokenmill.grain.rows("corpus/")).shuffle(seed=0).batch(16)

Processes get a source by pickle: only the names of its files are sent. Threads can share it. Grain
compares the `repr` of a source when it resumes from a checkpoint; here, it names the dataset, the
plan and all options by their ids and values, and no folder, so that a dataset can be moved.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from functools import lru_cache
from operator import index as as_index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import numpy as np

from tokenmill.api.datasets import opened
from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.columns import Batch, BatchContent, BatchOptions, columns_of
from tokenmill.load.opening import make_options
from tokenmill.load.rows.provenance import Provenance
from tokenmill.load.rows.reader import RowReader, Targets
from tokenmill.load.rows.token_source import TokenSource
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan, chosen_plan

if TYPE_CHECKING:
    from tokenmill.api.options import RowArguments

ROW_COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids")
SHARDS_KEPT = 64
"""Shards of a view whose chosen documents stay in memory."""


class Source(ABC):
    """Items by their index, from 0. An index below 0 counts from the end, as in a list."""

    def __init__(self, facts: dict[str, object]) -> None:
        self._facts = facts
        self._lock = threading.Lock()  # readers map files as they go

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _item(self, index: int) -> dict[str, Any]: ...

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return an item.

        Raises:
            IndexError: there is no such item.
            VerificationError: a plan, an index or a block of tokens is damaged.
        """
        place = as_index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place} of a source with {len(self)} items")
        with self._lock:
            return self._item(place % len(self))

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self._facts.items())
        return f"{type(self).__name__}({facts})"


class DocumentSource(Source):
    """The documents of a dataset or a view, in its order: see `documents`."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__({"dataset": dataset.manifest.dataset_id})
        self._dataset, self._reader = dataset, TokenSource(dataset)
        shards = dataset.shards
        self._firsts = offsets_from_lengths([shard.num_documents for shard in shards])
        stored = [shard.entry.documents for shard in shards]
        self._numbers = offsets_from_lengths(stored)
        self._chosen = lru_cache(SHARDS_KEPT)(lambda shard: shards[shard].chosen)

    def __reduce__(self) -> tuple[type[DocumentSource], tuple[Dataset]]:
        return type(self), (self._dataset,)

    def __len__(self) -> int:
        """Number of documents."""
        return int(self._firsts[-1])

    def _item(self, index: int) -> dict[str, Int64Array]:
        shard = int(np.searchsorted(self._firsts, index, side="right")) - 1
        local = index - int(self._firsts[shard])
        if self._dataset.is_view:
            local = int(self._chosen(shard)[local])
        return {"input_ids": self._reader.document(int(self._numbers[shard]) + local)}


class RowSource(Source):
    """The rows of a plan, in its order: see `rows`."""

    def __init__(self, reader: RowReader, options: BatchOptions) -> None:
        facts = {
            "dataset": reader.dataset.manifest.dataset_id,
            "plan": reader.plan.manifest.plan_id,
        }
        changed = {
            name: repr(value)
            for struct in (options, reader.targets)
            for name, value in msgspec.structs.asdict(struct).items()
            if value != getattr(type(struct)(), name)
        }
        super().__init__({**facts, **changed})
        self._reader, self._options = reader, options

    def __reduce__(self) -> tuple[type[RowSource], tuple[RowReader, BatchOptions]]:
        return type(self), (self._reader, self._options)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._reader.plan)

    def _item(self, index: int) -> Batch:
        reader, plan, row = self._reader, self._reader.plan, np.array([index])
        segments = slice(*plan.offsets[index : index + 2].tolist())
        size = plan.lengths[segments].sum(dtype=np.int64, keepdims=True)
        rows, layout = reader.read_layout(row, int(plan.rows.row_lengths_of(size)[0]))
        first = np.zeros(1, np.int64)
        content = BatchContent(
            rows=rows,
            most_segments=reader.most_segments,
            options=self._options,
            provenance=Provenance(layout, row, first, first, first, seed=0),
        )
        columns = columns_of(content)
        return {
            name: value[0] if np.ndim(value) == 2 or name == "task_ids" else value
            for name, value in columns.items()
        }


def documents(dataset: Dataset | str | Path) -> DocumentSource:
    """Return the documents of a dataset or a view as a source.

    An item is a dict with `input_ids`: int64, shape (num_tokens,), with the boundary tokens that
    the dataset has.

    Args:
        dataset: an open dataset, or its folder. For one in a bucket, pass `tokenmill.open(...)`.

    Raises:
        UserError: the dataset does not exist.
        VerificationError: the dataset is damaged.
    """
    return DocumentSource(opened(dataset))


def rows(
    dataset: Dataset | str | Path,
    plan: Plan | str | Path | None = None,
    **options: Unpack[RowArguments],
) -> RowSource:
    """Return the rows of a plan as a source, in the plan's order.

    An item is a dict of the columns of a loader for one row: `input_ids` and `labels` (int64),
    `position_ids` (int64) and `segment_ids` (int32), shape (row_length,) each, unless `columns`
    names others. If the plan has several row lengths, each row has its own.

    Args:
        dataset: an open dataset, or its folder. For one in a bucket, pass `tokenmill.open(...)`.
        plan: name or folder of a plan. If the dataset has a single plan, you can omit it.
        options: fields of `BatchOptions` and `Targets`. `masked_lm` and `fill_in_middle` are not
            possible, because they change from epoch to epoch, which a source does not know.

    Raises:
        UserError: an option is invalid or unknown, or the plan does not exist.
        VerificationError: the dataset is damaged.
    """
    content, targets = make_options((BatchOptions, Targets), {"columns": ROW_COLUMNS, **options})
    problem = content.problems()
    if content.masked_lm is not None or content.fill_in_middle is not None:
        problem = "a source of rows does not support masked_lm or fill_in_middle"
    if "segmentation" in content.columns:
        problem = "columns: segmentation is no array; take segment_ids or cu_seqlens"
    if problem:
        raise UserError("invalid option of a source", why=problem)
    found = opened(dataset)
    reader = RowReader(found, chosen_plan(found, plan), targets, np.dtype(np.int64))
    return RowSource(reader, content)
