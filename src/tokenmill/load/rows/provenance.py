"""Where the rows of a batch come from: their segments, sequences, epochs, sources and documents.

Rows of a text stream have no provenance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.kernels.infilling import (
    HOLDS_SENTINEL,
    NO_PLACE,
    PSM,
    SPM,
    TOO_SHORT,
    WITHOUT_LOSS,
)
from tokenmill.store.dataset import Dataset

AS_STORED = "as stored"
OUTCOMES = {
    PSM: "PSM",
    SPM: "SPM",
    TOO_SHORT: "too short",
    WITHOUT_LOSS: "tokens without loss",
    HOLDS_SENTINEL: "holds a sentinel",
    NO_PLACE: "too few places",
}
"""What fill-in-the-middle did to a chosen segment; all after the first two say why it was not cut.
Bits of `Layout.kinds` above those of `kernels/rows`."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The segments of rows, and their positions. All arrays have shape (num_segments,)."""

    rows: Int64Array
    shards: Int64Array
    documents: Int64Array
    starts: Int64Array
    lengths: Int64Array
    document_lengths: Int64Array
    columns: Int64Array
    kinds: Int64Array
    """Sums of BOS, EOS, JOINED and GOES_ON, and of `OUTCOMES`."""

    @staticmethod
    def interleaved(parts: list[Layout], places: list[Int64Array]) -> Layout:
        """Merge the layouts of several readers: row i of part k becomes row `places[k][i]`."""
        rows = [chosen[part.rows] for part, chosen in zip(parts, places, strict=True)]
        order = np.argsort(np.concatenate(rows), kind="stable")
        columns = [np.concatenate(rows)[order]]
        for name in Layout.__slots__[1:]:
            columns.append(np.concatenate([getattr(part, name) for part in parts])[order])
        return Layout(*columns)


@dataclass(frozen=True, slots=True)
class Provenance:
    """The provenance of the rows of a batch. Arrays have shape (num_rows,)."""

    layout: Layout
    """Layout of the rows before they were cut shorter."""
    sequences: Int64Array
    epochs: Int64Array
    firsts: Int64Array
    """Position at which each row starts in its sequence; above 0 if rows were cut."""
    sources: Int64Array
    """Source of each row in a mixture."""
    seed: int


@dataclass(frozen=True, slots=True)
class SegmentOrigin:
    """A segment of a batch and the record it comes from."""

    rank: int
    row: int
    """Row in the batch of the rank, from 0."""
    column: int
    """Position of the first token in the row."""
    plan: int
    """Number of the plan in a mixture; 0 if there is only one."""
    sequence: int
    epoch: int
    document: int
    start: int
    """Position of the first token in the document."""
    length: int
    document_tokens: int
    record: dict[str, Any]
    """The row of the documents table: source, position in the source, id and kept columns."""
    fill_in_middle: str = AS_STORED
    """"PSM" or "SPM" if fill-in-the-middle cut the segment, else the reason it did not."""


def origins(dataset: Dataset, layout: Layout, rows: list[dict[str, int]]) -> list[SegmentOrigin]:
    """Return the segments of rows; `rows` gives the rank, row, plan, sequence and epoch of each."""
    documents = np.asarray(layout.documents)
    records = dataset.records(documents)
    return [
        SegmentOrigin(
            **rows[int(layout.rows[i])],
            column=int(layout.columns[i]),
            document=int(documents[i]),
            start=int(layout.starts[i]),
            length=int(layout.lengths[i]),
            document_tokens=int(layout.document_lengths[i]),
            record=records[i],
            fill_in_middle=outcome(int(layout.kinds[i])),
        )
        for i in range(len(documents))
    ]


def outcome(kind: int) -> str:
    """Return the name of what fill-in-the-middle did to a segment."""
    return next((text for bit, text in OUTCOMES.items() if kind & bit), AS_STORED)
