"""The arrays of a batch, derived from its rows and from where their segments lie.

Rows of 7 tokens: a document 7 8 9 that goes on with 5, a document 3 4 2, one token of padding.

    input_ids      7  8  9  3  4  2  0
    labels         8  9  5  4  2  -  -     "next"; "aligned" ones: -  8  9  -  4  2  -
    position_ids   0  1  2  0  1  2  0     of the segment; "row": 0 1 2 3 4 5 6
    segment_ids    0  0  0  1  1  1 -1
    cu_seqlens     0  3  6  7              of fixed size: more rows end with empty segments
    loss_weights   ⅓  ⅓  ⅓  ½  ½  0  0     "document"
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tokenmill.errors import UserError
from tokenmill.load.fill_in_middle import FillInMiddle
from tokenmill.load.masked_lm import MaskedLM, mask_tokens
from tokenmill.load.rows.provenance import Provenance
from tokenmill.load.rows.reader import Rows
from tokenmill.records import Int32Array, Int64Array

Batch = dict[str, Any]

FOR_TRANSFORMERS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "use_cache")
"""With these and `position_ids`, `model(**batch)` keeps documents apart in models of transformers.

With a cache, which is their default, they do not look at `position_ids`; FlashAttention does not
in batches of several rows.
"""
DEFAULT_COLUMNS = (
    "input_ids", "labels", "position_ids", "cu_seqlens", "max_seqlen", *FOR_TRANSFORMERS
)  # fmt: skip


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a batch holds."""

    columns: Annotated[
        tuple[str, ...], Meta(description="names of the arrays; all are listed in COLUMNS")
    ] = DEFAULT_COLUMNS
    positions: Annotated[
        Literal["segment", "document", "row"],
        Meta(description="positions begin again in each segment, go on in a cut document, or run"),
    ] = "segment"
    position_scale: Annotated[
        float, Meta(gt=0, description="factor of positions; other than 1 makes them float32")
    ] = 1.0
    loss_weights: Annotated[
        Literal["token", "document", "square-root"],
        Meta(description="every token counts the same, every piece of a document, or in between"),
    ] = "token"
    masked_lm: MaskedLM | None = None
    """Labels of a masked language model, instead of causal ones."""
    fill_in_middle: FillInMiddle | None = None
    """Cut some documents into prefix, middle and suffix, and put the middle last."""

    def problems(self) -> str:
        """What is wrong with the options, or nothing."""
        unknown = sorted(set(self.columns) - set(COLUMNS))
        if unknown:
            return f"columns: unknown {', '.join(unknown)}; choose from {', '.join(COLUMNS)}"
        if not self.columns:
            return "columns: name at least one"
        rule = self.masked_lm
        if rule is not None and self.fill_in_middle is not None:
            return "fill_in_middle: masked_lm has labels of its own"
        if rule is not None and rule.mask_share + rule.random_share > 1:
            return "masked_lm: mask_share and random_share add up to more than 1"
        return ""


@dataclass(frozen=True)
class BatchContent:
    """Everything that the arrays of a batch are made from."""

    rows: Rows
    most_segments: int
    """That the rows can have all together, padding included."""
    options: BatchOptions
    provenance: Provenance | None = None
    """For the columns that say where rows come from; None if rows are of no plan."""

    @cached_property
    def masked(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Ids and labels, those of a masked language model where it was asked for."""
        rows, rule = self.rows, self.options.masked_lm
        if rule is None:
            return rows.ids, rows.labels
        known = self.known_provenance
        origins = (known.sequences, known.epochs, known.firsts, known.sources)
        return mask_tokens(rows, origins, known.seed, rule)

    @property
    def known_provenance(self) -> Provenance:
        """Where the rows come from.

        Raises:
            UserError: they are of no plan.
        """
        if self.provenance is None:
            raise UserError(
                "these rows come from no plan",
                why="task_ids, positions in documents and masked_lm follow from a plan",
            )
        return self.provenance


def columns_of(content: BatchContent) -> Batch:
    """The arrays of a batch that its options name."""
    return {name: COLUMNS[name](content) for name in content.options.columns}


def _input_ids(content: BatchContent) -> npt.NDArray[Any]:
    return content.masked[0]


def _labels(content: BatchContent) -> npt.NDArray[Any]:
    return content.masked[1]


def _position_ids(content: BatchContent) -> npt.NDArray[Any]:
    """int64, or float32 where they are scaled."""
    rows, options = content.rows, content.options
    shape = rows.ids.shape
    if options.positions == "row":
        positions = np.tile(np.arange(shape[1]), (shape[0], 1))
    else:
        firsts = np.zeros(len(rows.segmentation), np.int64)
        if options.positions == "document":
            firsts = _document_positions(content)
        positions = np.empty(shape, np.int64)
        rows.segmentation.count_positions(positions, firsts)
    if options.position_scale == 1:
        return positions
    return positions.astype(np.float32) * np.float32(options.position_scale)


def _document_positions(content: BatchContent) -> Int64Array:
    """Shape (num_segments,): where in its document each segment begins; 0 for padding."""
    layout, segmentation = content.known_provenance.layout, content.rows.segmentation
    whole_row = content.rows.ids.size // (int(layout.rows[-1]) + 1)  # before it was cut
    places = layout.rows * whole_row + layout.columns
    edges = segmentation.edges[:-1].astype(np.int64)
    owner = np.searchsorted(places, edges, side="right") - 1
    firsts = layout.starts[owner] + edges - places[owner]
    firsts[segmentation.is_padding] = 0
    return firsts


def _cu_seqlens(content: BatchContent) -> Int32Array:
    """int32, shape (most_segments + 1,)."""
    return content.rows.segmentation.padded_edges(content.most_segments)


def _max_seqlen(content: BatchContent) -> int:
    return content.rows.segmentation.max_length


def _segment_ids(content: BatchContent) -> Int32Array:
    """int32; -1 for padding."""
    return content.rows.segmentation.ids


def _task_ids(content: BatchContent) -> Int64Array:
    """int64, shape (num_rows,): the source of each row."""
    return content.known_provenance.sources


def _attention_mask(content: BatchContent) -> Int64Array:
    """int64: 1 for tokens, 0 for padding. It says nothing of documents."""
    return content.rows.real.astype(np.int64)


def _loss_weights(content: BatchContent) -> npt.NDArray[np.float32]:
    """float32; 0 where there is no label."""
    targets = content.rows.has_label if content.options.masked_lm is None else _is_masked(content)
    if content.options.loss_weights == "token":
        return targets.astype(np.float32)
    edges = content.rows.segmentation.edges
    counts = np.add.reduceat(targets.reshape(-1), edges[:-1], dtype=np.int64)
    counts = np.maximum(counts, 1)
    weights = 1 / (counts if content.options.loss_weights == "document" else np.sqrt(counts))
    spread = np.repeat(weights, np.diff(edges)).reshape(targets.shape)
    return np.where(targets, spread, 0).astype(np.float32)


def _is_masked(content: BatchContent) -> npt.NDArray[np.bool_]:
    return content.masked[1] >= 0


def _num_targets(content: BatchContent) -> int:
    """Labels of the batch: what a sum of losses is divided by."""
    return int(np.count_nonzero(_labels(content) >= 0))


def _use_cache(content: BatchContent) -> bool:  # noqa: ARG001 - as all columns
    """False: a cache is for generating text."""
    return False


def _segmentation(content: BatchContent) -> object:
    """Where segments lie; masks are made from it."""
    return content.rows.segmentation


COLUMNS: dict[str, Any] = {
    "input_ids": _input_ids,
    "labels": _labels,
    "position_ids": _position_ids,
    "cu_seqlens": _cu_seqlens,
    "max_seqlen": _max_seqlen,
    "segment_ids": _segment_ids,
    "task_ids": _task_ids,
    "attention_mask": _attention_mask,
    "loss_weights": _loss_weights,
    "num_targets": _num_targets,
    "segmentation": _segmentation,
    # The names under which Hugging Face models take them.
    "cu_seq_lens_q": _cu_seqlens,
    "cu_seq_lens_k": _cu_seqlens,
    "max_length_q": _max_seqlen,
    "max_length_k": _max_seqlen,
    "use_cache": _use_cache,
}
