"""The arrays of a batch, computed from its rows and the boundaries of their segments.

A row of 7 tokens: a document 7 8 9 that continues with 5, a document 3 4 2, one token of padding.

    input_ids      7  8  9  3  4  2  0
    labels         8  9  5  4  2  -  -     "next"; "aligned" ones: -  8  9  -  4  2  -
    position_ids   0  1  2  0  1  2  0     "segment"; with "row": 0 1 2 3 4 5 6
    segment_ids    0  0  0  1  1  1 -1
    cu_seqlens     0  3  6  7              padded to a fixed size with empty segments
    loss_weights   ⅓  ⅓  ⅓  ½  ½  0  0     "document"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.kernels.batches import mask_row
from tokenmill.kernels.permutation import keyed_hash
from tokenmill.kernels.rows import IGNORE_INDEX
from tokenmill.load.fill_in_middle import FillInMiddle
from tokenmill.load.rows.provenance import Provenance
from tokenmill.load.rows.reader import Rows
from tokenmill.load.rows.segmentation import Segmentation, as_array

Batch = dict[str, Any]

FOR_TRANSFORMERS = ("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "use_cache")
"""With these and `position_ids`, `model(**batch)` of transformers keeps documents apart.

With a cache, which is the default, these models ignore `position_ids`; with several rows in a
batch, so does FlashAttention.
"""
DEFAULT_COLUMNS = (
    "input_ids", "labels", "position_ids", "cu_seqlens", "max_seqlen", *FOR_TRANSFORMERS
)  # fmt: skip


Share = Annotated[float, Meta(ge=0, le=1)]
TokenId = Annotated[int, Meta(ge=0, lt=2**31)]


class MaskedLM(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of masked language modelling: which tokens to mask, and how.

    As in J. Devlin et al.: BERT, 2019 (arXiv 1810.04805): most chosen tokens become the mask token,
    some become a random token, and some stay. The choice depends on the seed, the epoch, the
    sequence and the position in it: each epoch masks other tokens, and a resumed run masks the same
    ones.
    """

    mask_id: TokenId
    vocab_size: Annotated[int, Meta(ge=1, le=2**31)]
    """Random replacement tokens are drawn from ids below this."""
    probability: Share = 0.15
    """Share of tokens to predict."""
    mask_share: Share = 0.8
    """Share of the predicted tokens that are replaced by the mask token."""
    random_share: Share = 0.1
    """Share of the predicted tokens that are replaced by a random token."""
    keep: tuple[TokenId, ...] = ()
    """Ids that are never masked, such as EOS."""


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options for the contents of a batch."""

    columns: Annotated[
        tuple[str, ...], Meta(description="names of the arrays; all are listed in COLUMNS")
    ] = DEFAULT_COLUMNS
    positions: Annotated[
        Literal["segment", "document", "row"],
        Meta(description="count positions from the start of the segment, the document or the row"),
    ] = "segment"
    position_scale: Annotated[
        float, Meta(gt=0, description="multiply positions; any factor but 1 makes them float32")
    ] = 1.0
    loss_weights: Annotated[
        Literal["token", "document", "square-root"],
        Meta(description="give equal weight to tokens, to segments, or something in between"),
    ] = "token"
    masked_lm: MaskedLM | None = None
    """Masked language modelling, instead of causal labels."""
    fill_in_middle: FillInMiddle | None = None
    """Cut some documents into prefix, middle and suffix, and put the middle last."""

    def problems(self) -> str:
        """Return what is wrong with the options, or an empty string."""
        unknown = sorted(set(self.columns) - set(COLUMNS))
        if unknown:
            return f"columns: unknown {', '.join(unknown)}; choose from {', '.join(COLUMNS)}"
        if not self.columns:
            return "columns: name at least one"
        rule = self.masked_lm
        if rule is not None and self.fill_in_middle is not None:
            return "fill_in_middle: cannot be combined with masked_lm"
        if rule is not None and rule.mask_share + rule.random_share > 1:
            return "masked_lm: mask_share and random_share add up to more than 1"
        return ""


@dataclass(frozen=True)
class BatchContent:
    """Everything that the arrays of a batch are computed from."""

    rows: Rows
    most_segments: int
    """The most segments that the rows can have in total, including padding."""
    options: BatchOptions
    provenance: Provenance | None = None
    """The origin of the rows; None if they do not come from a plan."""

    @cached_property
    def masked(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Ids and labels, masked if the options ask for masked language modelling."""
        rows, rule = self.rows, self.options.masked_lm
        if rule is None:
            return rows.ids, rows.labels
        known = self.known_provenance
        origins = (known.sequences, known.epochs, known.firsts, known.sources)
        return mask_tokens(rows, origins, known.seed, rule)

    @property
    def known_provenance(self) -> Provenance:
        """The origin of the rows; the loader of texts refuses what needs one."""
        assert self.provenance is not None
        return self.provenance


def mask_tokens(
    rows: Rows, origins: tuple[Int64Array, ...], seed: int, rule: MaskedLM
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return masked ids, and labels (IGNORE_INDEX if not predicted), in the dtype of the rows.

    `origins` are the sequence, the epoch, the first position in the sequence, and the source of
    each row, shape (num_rows,) each.
    """
    sequences, epochs, firsts, sources = origins
    keys = keyed_hash(sequences.astype(np.uint64), seed)
    keys = keyed_hash(keys + (epochs + (sources << 48)).astype(np.uint64), seed)
    places = np.arange(3 * rows.ids.shape[1], dtype=np.uint64)  # three draws for each token
    skipped = 3 * firsts.astype(np.uint64)
    ids, labels = rows.ids.copy(), np.full(rows.ids.shape, IGNORE_INDEX, rows.ids.dtype)
    kept = np.array(sorted(rule.keep), np.int64)
    shares = (rule.probability, rule.mask_share, rule.mask_share + rule.random_share)
    for row, key in enumerate(keys.tolist()):
        draws = keyed_hash(skipped[row] + places, key)
        others = (rule.mask_id, rule.vocab_size)
        mask_row((ids[row], labels[row], rows.flags[row]), draws, shares, others, kept)
    return ids, labels


def columns_of(content: BatchContent) -> Batch:
    """Return the columns that the options ask for."""
    return {name: COLUMNS[name](content) for name in content.options.columns}


def _position_ids(content: BatchContent) -> npt.NDArray[Any]:
    """int64, or float32 if positions are scaled."""
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
    """Return where each segment starts in its document, shape (num_segments,); 0 for padding."""
    layout, segmentation = content.known_provenance.layout, content.rows.segmentation
    whole_row = content.rows.ids.size // (int(layout.rows[-1]) + 1)  # before rows were cut
    places = layout.rows * whole_row + layout.columns
    edges = segmentation.edges[:-1].astype(np.int64)
    owner = np.searchsorted(places, edges, side="right") - 1
    firsts = layout.starts[owner] + edges - places[owner]
    firsts[segmentation.is_padding] = 0
    return firsts


def _loss_weights(content: BatchContent) -> npt.NDArray[np.float32]:
    """float32; 0 for tokens without a label."""
    targets = content.rows.has_label
    if content.options.masked_lm is not None:
        targets = content.masked[1] >= 0
    if content.options.loss_weights == "token":
        return targets.astype(np.float32)
    edges = content.rows.segmentation.edges
    counts = np.add.reduceat(targets.reshape(-1), edges[:-1], dtype=np.int64)
    counts = np.maximum(counts, 1)
    weights = 1 / (counts if content.options.loss_weights == "document" else np.sqrt(counts))
    spread = np.repeat(weights, np.diff(edges)).reshape(targets.shape)
    return np.where(targets, spread, 0).astype(np.float32)


def _cu_seqlens(content: BatchContent) -> Int32Array:
    """int32, shape (most_segments + 1,)."""
    return content.rows.segmentation.padded_edges(content.most_segments)


def _max_seqlen(content: BatchContent) -> int:
    return content.rows.segmentation.max_length


COLUMNS: dict[str, Callable[[BatchContent], Any]] = {
    "input_ids": lambda content: content.masked[0],
    "labels": lambda content: content.masked[1],
    "position_ids": _position_ids,
    "cu_seqlens": _cu_seqlens,
    "max_seqlen": _max_seqlen,
    # int32; -1 for padding.
    "segment_ids": lambda content: content.rows.segmentation.ids,
    # int64, shape (num_rows,): the source of each row.
    "task_ids": lambda content: content.known_provenance.sources,
    # int64: 1 for tokens, 0 for padding. It does not separate documents.
    "attention_mask": lambda content: content.rows.real.astype(np.int64),
    "loss_weights": _loss_weights,
    # Number of labels in the batch; divide the sum of losses by it.
    "num_targets": lambda content: int(np.count_nonzero(content.masked[1] >= 0)),
    # The boundaries of segments, to build masks from.
    "segmentation": lambda content: content.rows.segmentation,
    # The same arrays, under the argument names of Hugging Face models. A cache is for generating.
    "cu_seq_lens_q": _cu_seqlens,
    "cu_seq_lens_k": _cu_seqlens,
    "max_length_q": _max_seqlen,
    "max_length_k": _max_seqlen,
    "use_cache": lambda content: False,
}


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
            part[name] = int(np.diff(as_array(edges[0])).max()) if edges else batch[name]
    if "num_targets" in batch:
        part["num_targets"] = int((part["labels"] >= 0).sum())
    return part


def _edges(edges: Any, number: int, places: Int64Array) -> Any:
    """Return the edges of a part, counted from its first token, with the same size for all parts.

    The size is that of the whole divided by the number of parts. If a part has more segments than
    that, because rows were cut, it is the size of the whole.
    """
    values = as_array(edges)
    bounds = np.searchsorted(values, places)
    size = (len(values) - 1) // (len(places) - 1) + 1
    if int(np.diff(bounds).max()) + 1 > size:
        size = len(values)
    first, stop = bounds[number : number + 2].tolist()
    padded = edges[:size] * 0 + int(places[number + 1] - places[number])
    padded[: stop - first] = edges[first:stop] - int(places[number])
    return padded
