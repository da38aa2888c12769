"""Rows of an iterable dataset, made batch by batch in whatever process reads it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tokenmill.hf.log import logger, logging_at
from tokenmill.hf.parallelism import Parallelism, thread_environment
from tokenmill.hf.source import (
    features_of_stream,
    find_text_column,
    first_texts,
    shortened,
    tell_of_dropped_columns,
    texts_of,
)
from tokenmill.hf.windows import COLUMNS
from tokenmill.hf.writing import checked_rows, row_features

if TYPE_CHECKING:
    from datasets import IterableDataset

    from tokenmill.hf.tokenizer import CausalLMTokenizer, Columns


def lazy_rows(owner: CausalLMTokenizer, dataset: IterableDataset) -> IterableDataset:
    """An iterable dataset of rows; but for a sample, nothing is read or encoded before it is asked.

    Raises:
        UserError: the column of texts is not known, or there are no documents to know it from.
    """
    features = features_of_stream(dataset)
    column = find_text_column(features, owner.text_column)
    tell_of_dropped_columns(features, column)
    parallelism = owner._parallelism()
    owner._workers.end()  # those of an earlier dataset know the owner as it was
    size = owner.config.batch_size
    if size is None:
        first = first_texts(dataset, column)
        mean_bytes = first.num_bytes / max(len(first.texts) + first.num_null, 1)
        with thread_environment(parallelism):
            size = owner._choose_batch_size(shortened(first.texts), mean_bytes)
    logger.info(parallelism.describe(size))
    return dataset.with_format(None).map(
        _RowsOfBatch(owner, column, parallelism),
        batched=True,
        batch_size=size,
        remove_columns=list(features),
        features=row_features(),
    )


class _RowsOfBatch:
    """What is called with a batch of documents."""

    def __init__(self, owner: CausalLMTokenizer, column: str, parallelism: Parallelism) -> None:
        self._owner = owner
        self._column = column
        self._parallelism = parallelism

    def __call__(self, batch: Mapping[str, list[Any]]) -> Columns:
        """The rows of the batch; `summary` of this process counts them."""
        started = time.perf_counter()
        owner, summary = self._owner, self._owner.summary
        texts = texts_of(batch[self._column])
        with logging_at(owner.config.verbose_level), thread_environment(self._parallelism):
            owner._encoder.choose_engine(texts.texts)  # before processes are forked
            owner._workers.begin(owner, self._parallelism.num_proc)
            columns = summary.timed("encode", owner._columns, self._column, texts.texts)
            rows = checked_rows(columns, owner.config.context_length)
            owner._encoder.finish_audit()
            summary.count(texts)
            summary.warn(" so far")
        summary.rows += len(rows)
        summary.tokens += int(np.count_nonzero(rows.attention_mask))
        summary.seconds += time.perf_counter() - started
        return {name: getattr(rows, name) for name in COLUMNS}
