"""Rows of an iterable dataset, made batch by batch in the process that reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tokenmill.hf.columns import RowColumns, RowFormat

if TYPE_CHECKING:
    from datasets import IterableDataset

Texts = Iterable[str | None]


def lazy_rows(
    dataset: IterableDataset,
    features: Mapping[str, Any],
    column: str,
    batch_size: int,
    form: RowFormat,
    make_rows: Callable[[Texts], RowColumns],
) -> IterableDataset:
    """Return an iterable dataset of rows that reads and encodes nothing until it is iterated.

    Args:
        dataset: with the columns of `features`, which the result drops.
        features: the columns and their types.
        column: the one with the texts.
        batch_size: documents of a batch.
        form: the columns of the rows.
        make_rows: the rows of the texts of a batch.
    """
    return dataset.with_format(None).map(
        _ColumnsOfBatch(make_rows, form, column),
        batched=True,
        batch_size=batch_size,
        remove_columns=list(features),
        features=form.features,
    )


class _ColumnsOfBatch:
    """The function that `map` calls with a batch of documents."""

    def __init__(
        self, make_rows: Callable[[Texts], RowColumns], form: RowFormat, column: str
    ) -> None:
        self._make_rows = make_rows
        self._form = form
        self._column = column

    def __call__(self, batch: Mapping[str, list[Any]]) -> dict[str, Any]:
        return self._form.arrays(self._make_rows(batch[self._column]))
