"""Split a batch into micro-batches, for gradient accumulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.load.columns import Batch
from tokenmill.load.rows.segmentation import Segmentation

EDGES = ("cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k")
LONGEST = ("max_seqlen", "max_length_q", "max_length_k")


def micro_batches(batch: Batch, count: int) -> list[Batch]:
    """Split a batch into `count` batches with the same number of rows, for gradient accumulation.

    Arrays are views, and rows keep their order.

    To get the mean loss over all trained tokens, add the summed losses of the parts and divide by
    the number of labels in the whole batch. The mean of the parts' means differs if parts have
    different numbers of labels.

    Raises:
        UserError: the rows cannot be divided evenly, or no array has rows.
    """
    shapes = [value.shape for value in batch.values() if getattr(value, "ndim", 0) == 2]
    if not shapes or count < 1 or shapes[0][0] % count:
        why = f"it has {shapes[0][0]} rows" if shapes else "no array has rows"
        raise UserError(f"cannot split the batch into {count} equal parts", why=why)
    num_rows, row_length = (int(size) for size in shapes[0])
    if "num_targets" in batch and "labels" not in batch:
        raise UserError(
            "cannot split the batch",
            why="it has num_targets but no labels, from which those of each part are counted",
            hint="add labels to the columns of the loader, or leave out num_targets",
        )
    step = num_rows // count
    places = np.arange(count + 1) * step * row_length
    return [_part(batch, slice(i * step, (i + 1) * step), places) for i in range(count)]


def _part(batch: Batch, rows: slice, places: Int64Array) -> Batch:
    """Return some rows of a batch; its parts start at these positions of its tokens."""
    part: Batch = {}
    for name, value in batch.items():
        if name in EDGES:
            part[name] = _edges(value, rows.start // (rows.stop - rows.start), places)
        elif isinstance(value, Segmentation):
            part[name] = value.part(rows.start, rows.stop)
        elif name == "use_cache":
            part[name] = value
        elif name not in (*LONGEST, "num_targets"):
            part[name] = value[rows]
    edges = [part[name] for name in EDGES if name in part]
    for name in LONGEST:
        if name in batch:  # without edges, the maximum of the whole batch is still a bound
            part[name] = int(np.diff(np.asarray(edges[0])).max()) if edges else batch[name]
    if "num_targets" in batch:
        part["num_targets"] = int((np.asarray(part["labels"]) >= 0).sum())
    return part


def _edges(edges: Any, number: int, places: Int64Array) -> Any:
    """Return the edges of a part, counted from its first token, with the same size for all parts.

    The size is that of the whole divided by the number of parts. If a part has more segments than
    that, because rows were cut, it is the size of the whole.
    """
    values = np.asarray(edges)
    bounds = np.searchsorted(values, places)
    size = (len(values) - 1) // (len(places) - 1) + 1
    if int(np.diff(bounds).max()) + 1 > size:
        size = len(values)
    first, stop = bounds[number : number + 2].tolist()
    padded = edges[:size] * 0 + int(places[number + 1] - places[number])
    padded[: stop - first] = edges[first:stop] - int(places[number])
    return padded
