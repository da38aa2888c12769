"""Where rows come from: their segments, sequences, epochs and sources.

Rows themselves know nothing of it. Those of a text stream have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenmill.records import Int64Array


@dataclass(frozen=True, slots=True)
class Layout:
    """The segments of some rows and where they go; all arrays have shape (num_segments,)."""

    rows: Int64Array
    shards: Int64Array
    documents: Int64Array
    starts: Int64Array
    lengths: Int64Array
    document_lengths: Int64Array
    columns: Int64Array
    kinds: Int64Array
    """Sums of BOS, EOS, JOINED and GOES_ON."""

    @staticmethod
    def interleaved(parts: list[Layout], places: list[Int64Array]) -> Layout:
        """Layouts of several readers as that of one: row i of part k is row `places[k][i]`."""
        rows = [chosen[part.rows] for part, chosen in zip(parts, places, strict=True)]
        order = np.argsort(np.concatenate(rows), kind="stable")
        columns = [np.concatenate(rows)[order]]
        for name in Layout.__slots__[1:]:
            columns.append(np.concatenate([getattr(part, name) for part in parts])[order])
        return Layout(*columns)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the rows of a batch come from; arrays have shape (num_rows,)."""

    layout: Layout
    """Of the rows before they were cut shorter."""
    sequences: Int64Array
    epochs: Int64Array
    firsts: Int64Array
    """Where each row begins in its sequence; above 0 if that was cut."""
    sources: Int64Array
    """Of a mixture."""
    seed: int
