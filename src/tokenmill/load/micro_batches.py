"""A batch in parts, for gradient accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenmill.errors import UserError
from tokenmill.load.columns import Batch
from tokenmill.load.segmentation import Segmentation

EDGES = ("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k")
LONGEST = ("max_seqlen", "max_length_q", "max_length_k")


def micro_batches(batch: Batch, count: int) -> list[Batch]:
    """`count` batches with equally many of the rows each, in their order; arrays are views.

    The mean loss over all trained tokens is the sum of the parts' summed losses, divided by the
    labels of the whole batch; the mean of the parts' means is another number where parts have
    different numbers of labels.

    Raises:
        UserError: the rows cannot be divided evenly, or no array has rows.
    """
    shapes = [value.shape for value in batch.values() if getattr(value, "ndim", 0) == 2]
    if not shapes or count < 1 or shapes[0][0] % count:
        why = f"{shapes[0][0]} rows in {count} parts" if shapes else "no array has rows"
        raise UserError("a batch cannot be divided", why=why)
    num_rows, row_length = (int(size) for size in shapes[0])
    step = num_rows // count
    return [_part(batch, slice(i * step, (i + 1) * step), row_length, count) for i in range(count)]


def _part(batch: Batch, rows: slice, row_length: int, count: int) -> Batch:
    first, stop = rows.start * row_length, rows.stop * row_length
    part: Batch = {}
    for name, value in batch.items():
        if name in EDGES:
            part[name] = _edges(value, first, stop, count)
        elif isinstance(value, Segmentation):
            part[name] = value.part(rows.start, rows.stop)
        elif name not in (*LONGEST, "num_targets"):
            part[name] = value[rows]
    edges = [part[name] for name in EDGES if name in part]
    for name in LONGEST:
        if name in batch:  # without edges, the longest of the whole is still a bound
            part[name] = int(np.diff(np.asarray(edges[0])).max()) if edges else batch[name]
    if "num_targets" in batch:
        part["num_targets"] = int((np.asarray(part["labels"]) >= 0).sum())
    return part


def _edges(edges: Any, first: int, stop: int, count: int) -> Any:
    """The edges of some rows, counted from their first token, in an array of the fixed size."""
    size = (len(edges) - 1) // count + 1
    inside = edges[(edges >= first) & (edges <= stop)][:size] - first
    padded = edges[:size] * 0 + (stop - first)
    padded[: len(inside)] = inside
    return padded
