"""Grids: the queries and keys that a mask is computed for.

Keys are all tokens of a row, and queries are its last `num_queries` tokens. If keys are cached,
there are fewer queries than keys:

    row          7 8 9 3 4 2
    segment      0 0 0 1 1 1
    position     0 1 2 0 1 2
    2 queries            4 2      the first one is query 0; if causal, it attends to keys 3 4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array
from tokenmill.load.masks.rules import Mask, Prefix, Task, Tokens, uses
from tokenmill.load.rows.segmentation import Segmentation, as_array


@dataclass(frozen=True)
class Grid:
    """The queries and keys of each row of a batch.

    Raises:
        UserError: there are more queries than tokens in a row, or a field does not have one value
            per segment.
    """

    segmentation: Segmentation
    num_queries: int | None = None
    """Number of queries: the last tokens of each row. None: all tokens."""
    prefix_lengths: npt.NDArray[np.integer] | None = None
    """For `Prefix`: length of each segment's prefix in tokens, shape (num_segments,)."""
    tasks: npt.NDArray[np.integer] | None = None
    """For `Task` and `by_source`: task id of each segment, shape (num_segments,).

    Values for padding are ignored.
    """

    def __post_init__(self) -> None:
        if not 0 <= self.first_query <= self.row_length:
            why = f"got {self.num_queries} for rows of {self.row_length} tokens"
            raise UserError("num_queries cannot be larger than a row", why=why)
        for name in ("prefix_lengths", "tasks"):
            values = getattr(self, name)
            if values is not None and np.shape(values) != (len(self.segmentation),):
                why = f"got shape {np.shape(values)} for {len(self.segmentation)} segments"
                hint = "count padding as a segment, too"
                raise UserError(f"{name} must have one value per segment", why=why, hint=hint)

    @staticmethod
    def of_batch(batch: Mapping[str, Any], **fields: Any) -> Grid:
        """Return the grid of a batch with the column `segmentation`.

        If the batch has the column `task_ids`, each source of a mixture is a task.

        Args:
            batch: a batch of a loader.
            fields: `num_queries` and `prefix_lengths`.

        Raises:
            UserError: the batch has no column `segmentation`.
        """
        segmentation = batch.get("segmentation")
        if not isinstance(segmentation, Segmentation):
            hint = 'add it to the columns of the loader: columns=(..., "segmentation")'
            raise UserError("the batch has no column segmentation", hint=hint)
        tasks = batch.get("task_ids")
        if tasks is not None:
            tasks = as_array(tasks)[segmentation.rows]
        return Grid(segmentation, tasks=tasks, **fields)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.segmentation.num_rows

    @property
    def row_length(self) -> int:
        """Number of keys in each row."""
        return self.segmentation.row_length

    @property
    def first_query(self) -> int:
        """Position of the first query in a row."""
        return 0 if self.num_queries is None else self.row_length - self.num_queries

    @cached_property
    def keys(self) -> Tokens:
        """All tokens of the rows; fields are int32 with shape (num_rows, row_length)."""
        numbers = np.arange(len(self.segmentation), dtype=np.int32)
        segments = np.repeat(numbers, self.segmentation.lengths).reshape(-1, self.row_length)
        return self.tokens(segments, self.segmentation.positions)

    def tokens(
        self, segments: Int32Array, positions: Any, shaped: Callable[[Int32Array], Any] = np.asarray
    ) -> Tokens:
        """Return the tokens at `positions` of `segments`.

        `shaped` is applied to the fields that all tokens of a segment share.
        """

        def of_segments(values: Int32Array | None) -> Any:
            return None if values is None else shaped(values[segments])

        return Tokens(
            shaped(segments), positions, of_segments(self._prefix), of_segments(self._task)
        )

    @cached_property
    def _prefix(self) -> Int32Array | None:
        return None if self.prefix_lengths is None else np.asarray(self.prefix_lengths, np.int32)

    @cached_property
    def _task(self) -> Int32Array | None:
        if self.tasks is None:
            return None
        return np.where(self.segmentation.is_padding, -1, self.tasks).astype(np.int32)

    @cached_property
    def query_lengths(self) -> Int32Array:
        """Number of queries in each segment, shape (num_segments,)."""
        first = self.segmentation.rows * self.row_length + self.first_query
        edges = self.segmentation.edges
        return (edges[1:] - np.maximum(edges[:-1], first)).clip(0).astype(np.int32)

    def check(self, mask: Mask) -> None:
        """Check that the grid has the fields that a mask needs.

        Raises:
            UserError: a field is missing.
        """
        for kind, name in ((Prefix, "prefix_lengths"), (Task, "tasks")):
            if uses(mask, kind) and getattr(self, name) is None:
                hint = f"pass one value per segment: Grid(segmentation, {name}=...)"
                raise UserError(f"the mask needs {name}", where=repr(mask), hint=hint)
