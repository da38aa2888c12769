"""Rows of an iterable dataset, made batch by batch in whatever process reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tokenmill.hf.windows import COLUMNS, RowColumns
from tokenmill.hf.writing import row_features

if TYPE_CHECKING:
    from datasets import IterableDataset

Texts = Iterable[str | None]


def lazy_rows(
    dataset: IterableDataset,
    features: Mapping[str, Any],
    column: str,
    batch_size: int,
    make_rows: Callable[[Texts], RowColumns],
) -> IterableDataset:
    """An iterable dataset of rows; nothing is read or encoded until it is iterated.

    Args:
        dataset: with the columns of `features`, which the result drops.
        features: the columns and their types.
        column: the one with the texts.
        batch_size: documents of a batch.
        make_rows: the rows of the texts of a batch.
    """
    return dataset.with_format(None).map(
        _ColumnsOfBatch(make_rows, column),
        batched=True,
        batch_size=batch_size,
        remove_columns=list(features),
        features=row_features(),
    )


class _ColumnsOfBatch:
    """What `map` calls with a batch of documents."""

    def __init__(self, make_rows: Callable[[Texts], RowColumns], column: str) -> None:
        self._make_rows = make_rows
        self._column = column

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, npt.NDArray[Any]]:
        rows = self._make_rows(batch[self._column])
        return {name: getattr(rows, name) for name in COLUMNS}
