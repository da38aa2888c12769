"""The training costs of a corpus, from its document lengths with a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.pack.costs import ModelShape
from tokenmill.pack.histogram import best_fit


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """Documents, with prefix and EOS, packed into rows of one length; longer ones are cut."""

    sequence_length: int
    tokens: int
    rows: int
    """Sequences of best-fit over the whole corpus. Plans pack windows, and need a few more."""
    fill: float
    """Share of the rows' tokens that is not padding."""
    concatenated_rows: int
    """Rows if documents were concatenated and cut anywhere."""
    attention: float
    """Squared segment lengths by squared rows: of the attention over whole rows, what is left if it
    stays inside documents."""
    flops: int | None
    """Of training on the corpus once, attention inside documents included; None without a model."""


def training_rows(
    pieces: Mapping[int, Int64Array], vocabulary_size: int, model: ModelShape | None
) -> list[TrainingRows]:
    """The figures for each sequence length; `pieces` as in a Tally."""
    return [
        _of_length(length, histogram, vocabulary_size, model)
        for length, histogram in sorted(pieces.items())
    ]


def _of_length(
    length: int, histogram: Int64Array, vocabulary_size: int, model: ModelShape | None
) -> TrainingRows:
    sizes = np.arange(length + 1, dtype=np.int64)
    tokens, squares = int(histogram @ sizes), int(histogram @ sizes**2)
    rows = best_fit(histogram, length, length).num_sequences
    return TrainingRows(
        sequence_length=length,
        tokens=tokens,
        rows=rows,
        fill=tokens / (rows * length) if rows else 1.0,
        concatenated_rows=-(-tokens // length),
        attention=squares / (rows * length**2) if rows else 1.0,
        flops=model.training_flops(vocabulary_size, tokens, squares) if model else None,
    )
