"""What a mask is laid over: the segments of rows, and which of their tokens are queries.

Queries are the last `num_queries` tokens of each row; keys are all of its tokens. Where keys are
cached, the same row is met again with fewer queries:

    row          7 8 9 3 4 2
    segment      0 0 0 1 1 1
    position     0 1 2 0 1 2
    2 queries            4 2      the first of them is query 0, and sees keys 3 4
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.errors import UserError
from tokenmill.load.masks.definition import Mask, Tokens, uses
from tokenmill.load.masks.rules import Prefix, Task
from tokenmill.load.rows.segmentation import Segmentation
from tokenmill.records import Int32Array


@dataclass(frozen=True)
class Grid:
    """Queries by keys, for each row of a batch.

    Raises:
        UserError: more queries than tokens in a row; not one value for each segment.
    """

    segmentation: Segmentation
    num_queries: int | None = None
    """Queries of each row, its last tokens; all of them if None."""
    prefix_lengths: npt.NDArray[np.integer] | None = None
    """Shape (num_segments,), for `Prefix`: leading tokens that all queries of the segment see."""
    tasks: npt.NDArray[np.integer] | None = None
    """Shape (num_segments,), for `Task` and `by_source`; that of padding is ignored."""

    def __post_init__(self) -> None:
        if not 0 <= self.first_query <= self.row_length:
            why = f"{self.num_queries} queries, {self.row_length} tokens"
            raise UserError("queries are the last tokens of a row", why=why)
        for name in ("prefix_lengths", "tasks"):
            values = getattr(self, name)
            if values is not None and np.shape(values) != (len(self.segmentation),):
                why = f"{np.shape(values)}, and there are {len(self.segmentation)} segments"
                hint = "padding is a segment too"
                raise UserError(f"{name} needs one value a segment", why=why, hint=hint)

    @staticmethod
    def of_batch(batch: Mapping[str, Any], **fields: Any) -> Grid:
        """The rows of a batch that has the column `segmentation`.

        Each source of a mixture is a task, where the batch has the column `task_ids`.

        Args:
            batch: what a loader gives.
            fields: `num_queries` and `prefix_lengths`.

        Raises:
            UserError: it has no such column.
        """
        segmentation = batch.get("segmentation")
        if not isinstance(segmentation, Segmentation):
            hint = 'loader(columns=(..., "segmentation"))'
            raise UserError("masks are made from the column segmentation", hint=hint)
        tasks = batch.get("task_ids")
        if tasks is not None:
            tasks = np.asarray(tasks)[segmentation.rows]
        return Grid(segmentation, tasks=tasks, **fields)

    @property
    def num_rows(self) -> int:
        """Rows of the batch."""
        return self.segmentation.num_rows

    @property
    def row_length(self) -> int:
        """Keys of each row."""
        return self.segmentation.row_length

    @property
    def first_query(self) -> int:
        """Tokens of a row that are no queries."""
        return 0 if self.num_queries is None else self.row_length - self.num_queries

    @cached_property
    def keys(self) -> Tokens:
        """Fields of shape (num_rows, row_length), int32."""
        numbers = np.arange(len(self.segmentation), dtype=np.int32)
        segments = np.repeat(numbers, self.segmentation.lengths).reshape(-1, self.row_length)
        return self.tokens(segments, self.segmentation.positions)

    def tokens(
        self, segments: Int32Array, positions: Any, shaped: Callable[[Int32Array], Any] = np.asarray
    ) -> Tokens:
        """Tokens at `positions` of `segments`; what segments have in common goes as `shaped`."""

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
        """Shape (num_segments,): tokens of each segment that are queries."""
        first = self.segmentation.rows * self.row_length + self.first_query
        edges = self.segmentation.edges
        return (edges[1:] - np.maximum(edges[:-1], first)).clip(0).astype(np.int32)

    def check(self, mask: Mask) -> None:
        """Whether it has what a mask asks for.

        Raises:
            UserError: it does not.
        """
        for kind, name in ((Prefix, "prefix_lengths"), (Task, "tasks")):
            if uses(mask, kind) and getattr(self, name) is None:
                hint = f"Grid(segmentation, {name}=...), a value for each segment"
                raise UserError(f"a mask needs {name}", where=repr(mask), hint=hint)
