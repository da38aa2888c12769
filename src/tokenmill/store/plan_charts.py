"""Charts of a plan, as `plan.plot`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tokenmill.core.charts import Histogram, Library
from tokenmill.core.records import Int64Array
from tokenmill.core.values import counted
from tokenmill.store.row_format import RowFormat


class Rows(Protocol):
    """What charts need of a plan."""

    offsets: Int64Array
    lengths: npt.NDArray[Any]
    rows: RowFormat

    def check_offsets(self) -> None:
        """Raise a VerificationError if the offsets do not ascend."""


BLOCK = 1 << 20
"""Rows that are read at once."""


class PlanCharts:
    """Charts of a plan, drawn by Altair or Matplotlib, whichever is installed."""

    def __init__(self, plan: Rows) -> None:
        self._plan = plan

    def fill(self, library: Library | None = None) -> Any:
        """Draw how many rows there are of each fill: the share of a row that is not padding.

        Args:
            library: "altair" or "matplotlib". None: Altair if it is installed.

        Returns:
            An `altair.Chart` or a `matplotlib.figure.Figure`.

        Raises:
            UserError: the library is not installed.
            VerificationError: the plan is damaged.
        """
        plan = self._plan
        plan.check_offsets()
        num_rows = len(plan.offsets) - 1
        counts = np.zeros(100, np.int64)
        for start in range(0, num_rows, BLOCK):
            edges = plan.offsets[start : start + BLOCK + 1]
            lengths = plan.lengths[edges[0] : edges[-1]]
            sizes = np.add.reduceat(lengths, edges[:-1] - edges[0], dtype=np.int64)
            percent = 100 * sizes // plan.rows.row_lengths_of(sizes)
            counts += np.bincount(percent.clip(max=99), minlength=100)
        least = int((counts > 0).argmax())
        return Histogram(
            title=f"Fill of {counted(num_rows, 'row')}",
            x="filled with tokens, %",
            y="rows",
            edges=range(least, 101),
            counts=counts[least:].tolist(),
        ).draw(library)
