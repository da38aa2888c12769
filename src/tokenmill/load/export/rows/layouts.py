"""Rows as fine-tuning tools read them.

A row of 8 tokens: a document 7 8 9, a second 3 4 2 without loss on 4, and padding (0).

    documents       input_ids       7 8 9              3 4 2
                    attention_mask  1 1 1              1 1 1
                    labels          - 8 9              - - 2
    trl             input_ids       7 8 9 3 4 2
                    labels          - 8 9 - - 2
                    seq_lengths     3 3
    llama-factory   input_ids       7 8 9 3 4 2 0 0
                    attention_mask  1 1 1 2 2 2 0 0
                    position_ids    0 1 2 0 1 2 0 1
                    labels          - 8 9 - - 2 - -
    bridge          input_ids       7 8 9 3 4 2
                    loss_mask       1 1 0 0 1 0        1 if the next token has loss
                    seq_start_id    0 3
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from tokenmill.core.errors import UserError
from tokenmill.core.options import OptionError
from tokenmill.core.records import Int64Array
from tokenmill.load.rows.reader import Rows
from tokenmill.store.exports import ExportOptions, Layout, layout_problems
from tokenmill.store.plan import Plan

LAYOUT_DTYPES: dict[Layout, dict[str, str]] = {
    "documents": {"input_ids": "int32", "attention_mask": "int8", "labels": "int32"},
    "trl": {"input_ids": "int32", "labels": "int32", "seq_lengths": "int32"},
    "llama-factory": {
        "input_ids": "int32",
        "attention_mask": "int32",
        "position_ids": "int32",
        "labels": "int32",
    },
    "bridge": {"input_ids": "int32", "loss_mask": "int8", "seq_start_id": "int32"},
}
"""The columns of each layout."""
Columns = dict[str, npt.NDArray[Any]]
LLAMA_FACTORY_MULTIPLE = 8
"""Its collator pads ids to a multiple of this, but not positions, and then fails."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Lists of numbers: list i is `values[offsets[i] : offsets[i + 1]]`."""

    values: npt.NDArray[Any]
    """Shape (num_values,)."""
    offsets: npt.NDArray[np.int32]
    """Shape (num_lists + 1,)."""

    @staticmethod
    def of_lengths(values: npt.NDArray[Any], lengths: npt.NDArray[np.integer]) -> Lists:
        """Return consecutive lists of these lengths."""
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        return Lists(values, offsets)

    @staticmethod
    def of_rows(values: npt.NDArray[Any]) -> Lists:
        """Return the rows of an array of shape (num_rows, row_length)."""
        return Lists.of_lengths(values.reshape(-1), np.full(len(values), values.shape[1]))

    def part(self, first: int, stop: int) -> Lists:
        """Return lists [first, stop)."""
        offsets = self.offsets[first : stop + 1]
        return Lists(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])


def check_layout(options: ExportOptions, plan: Plan) -> None:
    """Check that a plan has rows of the layout that is asked for.

    Raises:
        OptionError: other options contradict the layout.
        UserError: padding of the plan would be lost, or LLaMA-Factory could not read its rows.
    """
    if problems := [*layout_problems(options)]:
        raise OptionError("the export", problems)
    if options.layout is UNSET:
        return
    if options.layout != "llama-factory":
        if plan.rows.segment_multiple > 1:
            raise UserError(
                f"the layout {options.layout} has no padding",
                where=str(plan.folder),
                why=f"the plan pads segments to a multiple of {plan.rows.segment_multiple}",
                hint="make a plan without --segment-multiple",
            )
        return
    for length in plan.rows.row_lengths:
        if length % LLAMA_FACTORY_MULTIPLE:
            raise UserError(
                f"LLaMA-Factory cannot read rows of {length:,} tokens",
                where=str(plan.folder),
                why=f"it pads all but position_ids to a multiple of {LLAMA_FACTORY_MULTIPLE}",
                hint=f"make a plan with --sequence-multiple {LLAMA_FACTORY_MULTIPLE}",
            )


def document_counts(plan: Plan, sequences: Int64Array) -> Int64Array:
    """Return how many documents each of the sequences becomes, shape (n,), as rows.

    Each segment is one; two joined ends count once.
    """
    plan.check_offsets()
    offsets = np.asarray(plan.offsets)
    counts = np.diff(offsets)
    if plan.rows.joins_ends:
        is_joined = np.zeros(len(plan.documents), np.int64)
        is_joined[1:] = plan.documents[1:] == plan.documents[:-1]
        is_joined[offsets[:-1]] = 0  # the first of a sequence
        counts = counts - np.add.reduceat(is_joined, offsets[:-1])
    found: Int64Array = counts[sequences]
    return found


def lay_out(layout: Layout, rows: Rows, columns: Columns) -> dict[str, Any]:
    """Return the columns of a layout: arrays of shape (num_rows, row_length), or `Lists`.

    Those of `columns` that are the same in all layouts have their values already.
    """
    return _LAY_OUT[layout](rows, columns)


def _documents(rows: Rows, columns: Columns) -> dict[str, Any]:
    return _cut(rows, columns, _lengths(rows))


def _trl(rows: Rows, columns: Columns) -> dict[str, Any]:
    lists = _cut(rows, columns, rows.real.sum(axis=1))
    return {**lists, "seq_lengths": _by_row(rows, _lengths(rows))}


def _bridge(rows: Rows, columns: Columns) -> dict[str, Any]:
    mask = np.zeros(rows.ids.shape, np.int8)
    mask[:, :-1] = rows.has_label[:, 1:]
    lists = _cut(rows, {**columns, "loss_mask": mask}, rows.real.sum(axis=1))
    segmentation = rows.segmentation
    starts = segmentation.edges[:-1] - segmentation.rows * segmentation.row_length
    starts = starts[~segmentation.is_padding].astype(np.int32)
    return {**lists, "seq_start_id": _by_row(rows, starts)}


def _llama_factory(rows: Rows, columns: Columns) -> dict[str, Any]:
    mask = columns["attention_mask"]
    np.cumsum(rows.restarts & rows.real, axis=1, out=mask)
    mask *= rows.real
    return columns


_LAY_OUT: dict[Layout, Callable[[Rows, Columns], dict[str, Any]]] = {
    "documents": _documents,
    "trl": _trl,
    "llama-factory": _llama_factory,
    "bridge": _bridge,
}


def _cut(rows: Rows, columns: Columns, lengths: npt.NDArray[np.integer]) -> dict[str, Any]:
    """Return the tokens that are not padding, as lists of these lengths."""
    real = rows.real
    return {name: Lists.of_lengths(values[real], lengths) for name, values in columns.items()}


def _lengths(rows: Rows) -> npt.NDArray[np.int32]:
    """Return the length of each segment but padding, shape (n,)."""
    return rows.segmentation.lengths[~rows.segmentation.is_padding]


def _by_row(rows: Rows, values: npt.NDArray[np.int32]) -> Lists:
    """Return one number of each segment but padding as a list for each row."""
    segmentation = rows.segmentation
    chosen = segmentation.rows[~segmentation.is_padding]
    return Lists.of_lengths(values, np.bincount(chosen, minlength=len(rows.ids)))
