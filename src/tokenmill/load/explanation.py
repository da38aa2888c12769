"""What a batch is made of: which part of which document stands where, and where that was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenmill.load.fill_in_middle import AS_STORED, outcome
from tokenmill.load.rows.provenance import Layout
from tokenmill.store.dataset import Dataset


@dataclass(frozen=True, slots=True)
class SegmentOrigin:
    """A segment of a batch and the record that it came from."""

    rank: int
    row: int
    """Of the rank's batch, from 0."""
    column: int
    """Of its first token in the row."""
    plan: int
    """Which plan of a mixture; 0 where there is only one."""
    sequence: int
    epoch: int
    document: int
    start: int
    """Its first token in the document."""
    length: int
    document_tokens: int
    record: dict[str, Any]
    """The row of the documents table: source, position in it, id, kept columns."""
    fill_in_middle: str = AS_STORED
    """PSM or SPM, if it was cut for filling in the middle; or why it was to be, and was not."""


def origins(dataset: Dataset, layout: Layout, rows: list[dict[str, int]]) -> list[SegmentOrigin]:
    """The segments of some rows; `rows` says of each its rank, row, plan, sequence and epoch."""
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
