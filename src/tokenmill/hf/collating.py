"""A data collator for packed rows that keeps the documents of a row apart in transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import UserError
from tokenmill.load.columns import FOR_TRANSFORMERS, Batch
from tokenmill.load.masks.varlen import of_position_ids

FILLING = {"input_ids": 0, "labels": -100, "position_ids": 0}
"""Columns of a batch, and the values that pad shorter rows."""
LEAK = 1e-4
"""Between rounding in mixtures of experts (1e-7) and the smallest leak that was found (4e-4)."""


def collator(model: Any = None) -> PackedRowsCollator:
    """Return a data collator for packed rows. Pass it to Trainer or SFTTrainer.

    Use it instead of `DataCollatorWithFlattening`, which treats each row as one document.

    Args:
        model: the model you train. If given, a few tokens are run through it to check that it
            keeps documents apart.

    Raises:
        UserError: the model lets documents attend to each other.
    """
    made = PackedRowsCollator()
    if model is not None:
        _refuse_leaking(model, made)
    return made


class PackedRowsCollator:
    """Collates packed rows into a batch in which documents do not attend to each other.

    Tensors have the shape (num_rows, row_length). `position_ids` restart at each document and at
    padding. There is no `attention_mask`, so transformers builds its mask from `position_ids`.
    FlashAttention gets the boundaries as `cu_seq_lens_q` and `cu_seq_lens_k`.
    """

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> Batch:
        """Collate rows with `input_ids`, aligned `labels` and `position_ids`.

        Raises:
            UserError: documents in a row would attend to each other, or labels are not aligned.
        """
        from tokenmill.load.loader import as_tensors

        if not rows:
            raise UserError("a batch has no rows")
        for row in rows:
            _refuse_columns(row)
        lengths = [len(row["input_ids"]) for row in rows]
        shape = len(rows), max(lengths)
        batch = {name: np.full(shape, filling, np.int64) for name, filling in FILLING.items()}
        for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            for name, values in batch.items():
                values[i, :length] = _values(row, name, length)
            batch["position_ids"][i, length:] = np.arange(shape[1] - length)
        _refuse_shifted(batch["input_ids"], batch["labels"])
        segmentation = of_position_ids(batch["position_ids"])
        edges, longest = segmentation.edges, segmentation.max_length
        others = dict(zip(FOR_TRANSFORMERS, (edges, edges, longest, longest, False), strict=True))
        return as_tensors({**batch, **others})


def _refuse_columns(row: Mapping[str, Any]) -> None:
    """Raise a UserError if documents of such rows would attend to each other."""
    if missing := [name for name in FILLING if name not in row]:
        raise UserError(
            f"rows have no {' and no '.join(missing)}",
            where=f"columns: {', '.join(row)}",
            why="without position_ids, documents in a row attend to each other",
            hint="export these columns. SFTTrainer removes position_ids unless you set "
            "remove_unused_columns=False and dataset_kwargs={'skip_prepare_dataset': True}. For "
            "rows of one document each, as CausalLMTokenizer makes them, use another collator",
        )
    if "attention_mask" in row:
        raise UserError(
            "rows have an attention_mask",
            where=f"columns: {', '.join(row)}",
            why="with one, transformers ignores position_ids, and documents attend to each other",
            hint="remove it: rows.remove_columns('attention_mask'); padding does not need it",
        )


def _values(row: Mapping[str, Any], name: str, length: int) -> npt.NDArray[Any]:
    """A column of a row as an array of shape (length,).

    Raises:
        UserError: the shape differs from that of `input_ids`, or the values are not integers.
    """
    values = np.asarray(row[name])
    if values.shape != (length,) or not np.issubdtype(values.dtype, np.integer):
        why = f"it has shape {values.shape} and dtype {values.dtype}; input_ids has {length} tokens"
        raise UserError(f"the column {name} of a row has the wrong shape or dtype", why=why)
    return values


def _refuse_shifted(ids: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> None:
    """Raise a UserError if a label differs from the token at the same position."""
    if ((labels != FILLING["labels"]) & (labels != ids)).any():
        raise UserError(
            "labels are not aligned with input_ids",
            why="models of transformers shift labels themselves, so these would be shifted twice",
            hint="export with --labels aligned, which is the default",
        )


def _refuse_leaking(model: Any, made: PackedRowsCollator) -> None:
    """Raise a UserError if a document's logits depend on the document before it in the row."""
    from tokenmill.load.loader import leak

    documents = ([2, 3, 4, 5], [3, 2, 5, 4]), [4, 3, 2, 4]
    batches = [
        made([{"input_ids": ids, "labels": ids, "position_ids": [0, 1, 2, 3] * 2}] * 2)
        for ids in ([*first, *documents[1]] for first in documents[0])
    ]
    found = leak(model, *batches, first=4)
    if found > LEAK:
        config = model.config
        raise UserError(
            f"{type(model).__name__} does not keep documents of a row apart",
            where=f"attention: {getattr(config, '_attn_implementation', 'unknown')}",
            why="replacing the first document changes the logits of the second one by "
            f"{found:.1%} of the change in its own logits",
            hint="use a model with attention that follows position_ids (Llama, Qwen, Mistral, "
            "GPT-2), or rows of one document each (tokenmill pack --packing next-fit "
            "--max-segments 1) and collator() without a model",
        )
