"""The origin of each segment of a batch: its document, and the record it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.load.fill_in_middle import AS_STORED, outcome
from tokenmill.load.rows.provenance import Layout
from tokenmill.store.dataset import Dataset


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
