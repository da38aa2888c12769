"""What a sequence length does to documents: rows, cuts, FLOPs, memory, batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.options import about
from tokenmill.core.records import Int64Array
from tokenmill.packing.costs import ModelShape, logit_bytes
from tokenmill.packing.histogram import best_fit
from tokenmill.reports.lengths.counts import LengthCounts


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Documents in sequences of one length; longer ones are split after every `length` tokens."""

    sequence_length: int
    cut_documents: int
    """Documents longer than a sequence."""
    cut_share: float
    """Of all documents."""
    cut_token_share: float
    """Share of the tokens that are in such documents."""
    from_start_share: float
    """Share of the tokens that share a sequence with the start of their document, and so see all of
    it that comes before them."""
    sequences: int
    """Sequences of best-fit over the whole corpus; a plan packs windows of shards, and needs a few
    more."""
    fill: float
    """Share of their tokens that is not padding."""
    padded_sequences: int
    """Rows if each piece has its own row."""
    padded_fill: float
    attention_share: float
    """Squared lengths of pieces by squared rows: what is left of attention over whole rows if it
    stays inside documents."""


@dataclass(frozen=True, slots=True)
class CostFigures:
    """The costs and batches of one sequence length for a model."""

    sequence_length: int
    dense_attention_flops: int
    """Of an epoch, if attention goes over whole rows. Forward and backward, all keys of a row for
    each query (`tokenmill.packing.costs`)."""
    masked_attention_flops: int
    """The same if it stays inside documents."""
    matrix_flops: int | None
    """FLOPs of everything except attention; None if the model's vocabulary is unknown."""
    activation_bytes: int
    """Bytes of one row in training, with a kernel that does not store attention scores."""
    score_bytes: int
    """What a kernel that keeps them adds: the part that grows with the square of the length."""
    checkpointed_bytes: int
    """Bytes of one row if only the inputs of layers are stored (checkpointing)."""
    logit_bytes: int | None
    """Bytes of the logits of one row in float32; None if the model's vocabulary is unknown."""
    kv_cache_bytes: int
    """Bytes for one sequence of this length during inference."""
    batch_rows: int
    """Rows of a batch of the token budget, at least one."""
    batch_documents: float
    """Mean pieces of documents in such a batch."""
    rows_that_fit: int | None
    """Rows whose activations fit into the memory for them; None if none was given."""
    accumulation_steps: int | None
    """Number of such micro-batches in a batch on one device; None if no row fits."""
    steps: int
    """Steps of an epoch, including an incomplete last one."""


class Budget(msgspec.Struct, frozen=True):
    """Possible batch sizes."""

    tokens_per_batch: Annotated[int, Meta(ge=1)]
    activation_memory: Annotated[
        Annotated[int, Meta(ge=1000)] | None,
        about("e.g. 24GB", unit="bytes", reason="a number without a unit means bytes"),
    ] = None
    """Bytes that one device has left for activations and logits."""


def row_figures(counts: LengthCounts, length: int) -> RowFigures:
    """Fill and cuts of one sequence length."""
    pieces = counts.pieces(length)
    longer = counts.lengths > length
    cut, num_tokens = int(counts.counts[longer].sum()), counts.num_tokens
    squares = squared_sum(pieces)
    sequences, padded = best_fit(pieces, length, length).num_sequences, int(pieces.sum())
    from_start = int(np.minimum(counts.lengths, length) @ counts.counts)
    return RowFigures(
        sequence_length=length,
        cut_documents=cut,
        cut_share=cut / counts.num_documents,
        cut_token_share=int(counts.lengths[longer] @ counts.counts[longer]) / num_tokens,
        from_start_share=from_start / num_tokens,
        sequences=sequences,
        fill=num_tokens / (sequences * length),
        padded_sequences=padded,
        padded_fill=num_tokens / (padded * length),
        attention_share=squares / (sequences * length**2),
    )


def cost_figures(
    counts: LengthCounts, rows: RowFigures, shape: ModelShape, budget: Budget
) -> CostFigures:
    """FLOPs, memory and batches for one sequence length."""
    length, vocabulary = rows.sequence_length, shape.vocabulary_size
    activations = shape.activation_bytes(length)
    logits = logit_bytes(vocabulary, length) if vocabulary else None
    batch_rows = max(budget.tokens_per_batch // length, 1)
    fits = micro = None
    if budget.activation_memory is not None:
        fits = budget.activation_memory // (activations + (logits or 0))
        micro = -(-batch_rows // fits) if fits else None
    return CostFigures(
        sequence_length=length,
        dense_attention_flops=shape.attention_flops(rows.sequences * length**2),
        masked_attention_flops=shape.attention_flops(squared_sum(counts.pieces(length))),
        matrix_flops=shape.matrix_flops(vocabulary, counts.num_tokens) if vocabulary else None,
        activation_bytes=activations,
        score_bytes=shape.score_bytes(length**2),
        checkpointed_bytes=shape.checkpointed_bytes(length),
        logit_bytes=logits,
        kv_cache_bytes=shape.kv_cache_bytes(length),
        batch_rows=batch_rows,
        batch_documents=batch_rows * rows.padded_sequences / rows.sequences,
        rows_that_fit=fits,
        accumulation_steps=micro,
        steps=-(-rows.sequences // batch_rows),
    )


def squared_sum(pieces: Int64Array) -> int:
    """The sum of squared sizes of pieces; to 53 bits, as the sum may exceed 64."""
    sizes = np.arange(len(pieces), dtype=np.float64)
    return int(pieces @ sizes**2)
