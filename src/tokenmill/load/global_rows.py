"""The rows of a global batch: dealt to ranks, read from the readers of their sources, explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.columns import BatchContent, BatchOptions
from tokenmill.load.fill_in_middle import CUTS_ROWS, Infilling
from tokenmill.load.rows.provenance import Layout, Provenance, SegmentOrigin, origins
from tokenmill.load.rows.reader import Rows
from tokenmill.load.sources import Sources
from tokenmill.load.steps.curriculum import shortened
from tokenmill.load.steps.schedule import GlobalBatch, attention_costs, deal


@dataclass(frozen=True, slots=True)
class GlobalRows:
    """Reads the rows of global batches."""

    sources: Sources
    options: BatchOptions
    seed: int
    infilling: Infilling | None
    even_attention: bool

    def dealt(self, whole: GlobalBatch, ranks: int) -> Int64Array:
        """Return the rows of each rank, shape (ranks, num_rows / ranks)."""
        num_rows = len(whole.sequences)
        if ranks == 1 or not self.even_attention:
            return np.arange(num_rows).reshape(ranks, -1)
        costs = np.empty(num_rows, np.int64)
        for number in self._possible(whole):
            inside = whole.sources == number
            costs[inside] = attention_costs(self.sources[number].plan, whole.sequences[inside])
        return deal(costs, ranks)

    def content(
        self, whole: GlobalBatch, chosen: Int64Array, columns: tuple[str, ...] | None = None
    ) -> BatchContent:
        """Read the chosen rows of a global batch, with everything that its arrays depend on."""
        sources, sequences = whole.sources[chosen], whole.sequences[chosen]
        rows, layout = self._read(whole, chosen)
        epochs, firsts, times = whole.epochs[chosen], np.zeros_like(chosen), 1
        if whole.cut_length is not None:
            if self.infilling is not None:
                raise UserError("cannot fill in the middle of these rows", why=CUTS_ROWS)
            rows = shortened(rows, whole.cut_length)
            times = whole.row_length // whole.cut_length
            firsts = np.tile(np.arange(times) * whole.cut_length, len(chosen))
            sources, sequences, epochs = (
                np.repeat(values, times) for values in (sources, sequences, epochs)
            )
        options = self.options
        if columns is not None:
            options = BatchOptions(columns=columns, masked_lm=options.masked_lm)
        most_segments = max(self.sources[number].most_segments for number in self._possible(whole))
        return BatchContent(
            rows=rows,
            most_segments=len(chosen) * (most_segments + times - 1),
            options=options,
            provenance=Provenance(layout, sequences, epochs, firsts, sources, self.seed),
        )

    def origins(self, whole: GlobalBatch, dealt: Int64Array) -> list[SegmentOrigin]:
        """Return the origin of every segment of a global batch, by rank and row."""
        found: list[SegmentOrigin] = []
        for number in np.unique(whole.sources).tolist():
            places = [
                (rank, row, int(place))
                for rank, rows in enumerate(dealt)
                for row, place in enumerate(rows)
                if whole.sources[place] == number
            ]
            chosen = np.array([place for _, _, place in places], np.int64)
            _, layout = self._read_from(number, whole, chosen)
            described = [
                {
                    "rank": rank,
                    "row": row,
                    "plan": number,
                    "sequence": int(whole.sequences[place]),
                    "epoch": int(whole.epochs[place]),
                }
                for rank, row, place in places
            ]
            found += origins(self.sources[number].dataset, layout, described)
        return sorted(found, key=lambda origin: (origin.rank, origin.row, origin.column))

    def _possible(self, whole: GlobalBatch) -> Sequence[int]:
        """Return the numbers of the sources that a batch may have rows of."""
        return self.sources.numbers if whole.possible is None else whole.possible

    def _read(self, whole: GlobalBatch, chosen: Int64Array) -> tuple[Rows, Layout]:
        """Read the chosen rows of a global batch, in their order."""
        numbers = self._possible(whole)
        if len(numbers) == 1:
            return self._read_from(numbers[0], whole, chosen)
        parts, places = [], []
        for number in numbers:
            inside = np.flatnonzero(whole.sources[chosen] == number)
            if len(inside):
                parts.append(self._read_from(number, whole, chosen[inside]))
                places.append(inside)
        return Rows.interleaved([rows for rows, _ in parts], places), Layout.interleaved(
            [layout for _, layout in parts], places
        )

    def _read_from(
        self, number: int, whole: GlobalBatch, chosen: Int64Array
    ) -> tuple[Rows, Layout]:
        """Read the chosen rows of a global batch, which all belong to one reader."""
        reader, sequences = self.sources[number], whole.sequences[chosen]
        found = reader.read_layout(sequences, whole.row_length)
        if self.infilling is None:
            return found
        return self.infilling.apply(reader, found, (sequences, whole.epochs[chosen], number))
