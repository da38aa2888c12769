"""The provenance of rows: their segments, sequences, epochs and sources.

Rows of a text stream have no provenance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int64Array


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
    """Sums of BOS, EOS, JOINED and GOES_ON."""

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
