"""Forms that need boundaries only: for kernels that know causality and windows by themselves.

Two segments of 3 and 2 tokens, and one of padding:

    cu_seqlens     0 3 5 6             position_ids   0 1 2 0 1 0
    seqlens        3 2 1               seq_idx        0 0 0 1 1 2

Padding is a segment like others. Rows of a batch follow one another, as a batch of one row.
Functions that are given a mask refuse one that the consumer cannot express.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.errors import UserError
from tokenmill.load.masks.definition import Mask
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.windows import band, flash_window
from tokenmill.load.rows.segmentation import Segmentation
from tokenmill.records import Int32Array, Int64Array


def flash_varlen(mask: Mask, grid: Grid, num_segments: int | None = None) -> dict[str, Any]:
    """Arguments of `flash_attn_varlen_func`: cu_seqlens, int32 of (num_segments + 1,), and more.

    Padded with empty segments to `num_segments`, where shapes are not to change. Queries and keys
    are aligned at the end of each segment, as flash-attn does it.

    Raises:
        UserError: the mask is more than causality and a window, or there are more segments.
    """
    found = band(mask, "flash_attn_varlen_func")
    q, k = _edges(grid, num_segments)
    return {
        "cu_seqlens_q": q,
        "cu_seqlens_k": k,
        "max_seqlen_q": int(grid.query_lengths.max(initial=0)),
        "max_seqlen_k": grid.segmentation.max_length,
        "causal": found.causal,
        "window_size": flash_window(mask),
    }


def hf_flash_kwargs(mask: Mask, grid: Grid, num_segments: int | None = None) -> dict[str, Any]:
    """`cu_seq_lens_q/k` (int32) and `max_length_q/k` (ints) of Hugging Face's flash attention.

    No attention_mask may go along: it would win. A window is the model's own (`sliding_window`).

    Raises:
        UserError: as for `flash_varlen`.
    """
    found = flash_varlen(mask, grid, num_segments)
    return {
        "cu_seq_lens_q": found["cu_seqlens_q"],
        "cu_seq_lens_k": found["cu_seqlens_k"],
        "max_length_q": found["max_seqlen_q"],
        "max_length_k": found["max_seqlen_k"],
    }


def xformers_seqlens(mask: Mask, grid: Grid) -> tuple[list[int], list[int]]:
    """Lengths for xformers' `BlockDiagonal...Mask.from_seqlens(q_seqlen, kv_seqlen)`.

    Causal masks are `BlockDiagonalCausalMask`, with fewer queries than keys
    `BlockDiagonalCausalFromBottomRightMask`; for windows, see `windows.keys_in_window`.

    Raises:
        UserError: the mask is more than causality and a window.
    """
    band(mask, "xformers seqlens")
    return grid.query_lengths.tolist(), grid.segmentation.lengths.tolist()


def position_ids(mask: Mask, grid: Grid) -> Int64Array:
    """Positions of the queries from which Hugging Face finds segments, (num_rows, num_queries).

    They begin at 0 in each segment, which is what its flash path looks for; its other paths look
    for differences other than 1. No attention_mask may go along, not even one of ones. The flash
    path looks at a batch of one row only: flatten them, with `.reshape(1, -1)`.

    Raises:
        UserError: the mask is more than causality and a window, or keys are cached: then models
            are given a 4-D mask.
    """
    if not band(mask, "position_ids").causal:
        raise UserError("position_ids say nothing to models that are not causal", where=repr(mask))
    if grid.first_query:
        hint = "torch_forms.additive gives a 4-D mask"
        raise UserError("position_ids do not say where cached segments begin", hint=hint)
    return grid.segmentation.positions.astype(np.int64)


def of_position_ids(positions: Int64Array) -> Segmentation:
    """Segments as Hugging Face finds them; which of them are padding is not known.

    Args:
        positions: shape (num_rows, row_length); a segment begins where one is not the last plus 1.
    """
    begins = np.ones(positions.shape, np.bool_)
    begins[:, 1:] = np.diff(positions, axis=1) != 1
    edges = np.append(np.flatnonzero(begins), positions.size).astype(np.int32)
    num_rows, row_length = positions.shape
    return Segmentation(num_rows, row_length, edges, np.zeros(len(edges) - 1, np.bool_))


def megatron_packed_seq_params(
    mask: Mask, grid: Grid, *, padding_between: bool = False
) -> dict[str, Any]:
    """Fields of Megatron's `PackedSeqParams`; cu_seqlens are int32.

    With `padding_between`, padding belongs to the segment before it and is left out by kernels
    that can: `cu_seqlens_q` count tokens, `cu_seqlens_q_padded` places. Otherwise both are alike.

    Raises:
        UserError: the mask is more than causality and a window; or `padding_between` and fewer
            queries than keys.
    """
    band(mask, "PackedSeqParams")
    q, k = _edges(grid, None)
    if not padding_between:
        edges = {"cu_seqlens_q": q, "cu_seqlens_q_padded": q}
        edges |= {"cu_seqlens_kv": k, "cu_seqlens_kv_padded": k}
    elif grid.first_query:
        raise UserError("padding may lie between segments only if all tokens are queries")
    else:
        tokens, places = _joined_padding(grid.segmentation)
        edges = {"cu_seqlens_q": tokens, "cu_seqlens_q_padded": places}
        edges |= {"cu_seqlens_kv": tokens, "cu_seqlens_kv_padded": places}
    longest = {
        f"max_seqlen_{side}": int(np.diff(edges[f"cu_seqlens_{side}_padded"]).max(initial=0))
        for side in ("q", "kv")
    }
    return {"qkv_format": "thd", **edges, **longest}


def seq_idx(grid: Grid) -> Int32Array:
    """Segments counted from 0 in each row, padding too, of (num_rows, row_length): for Mamba.

    State-space layers and their convolutions begin anew where it changes.
    """
    segments, rows = grid.keys.segment, grid.segmentation.rows
    firsts = np.searchsorted(rows, np.arange(grid.num_rows)).astype(np.int32)
    return np.asarray(segments - firsts[:, None], np.int32)


def _edges(grid: Grid, num_segments: int | None) -> tuple[Int32Array, Int32Array]:
    """Edges of the queries and of the keys of each segment, those of rows without queries too."""
    segmentation = grid.segmentation
    keys = segmentation.padded_edges(len(segmentation) if num_segments is None else num_segments)
    counts = np.zeros(len(keys) - 1, np.int32)
    counts[: len(segmentation)] = grid.query_lengths
    return offsets_from_lengths(counts).astype(np.int32), keys


def _joined_padding(segmentation: Segmentation) -> tuple[Int32Array, Int32Array]:
    """Edges of tokens, and edges of places, padding being behind its segment."""
    edges, is_padding = segmentation.edges, segmentation.is_padding
    firsts = ~is_padding
    firsts[:1] = True  # padding that nothing precedes: a segment of no tokens
    places = np.append(edges[:-1][firsts], edges[-1])
    tokens = np.where(is_padding, 0, segmentation.lengths)[firsts]
    return offsets_from_lengths(tokens).astype(np.int32), places.astype(np.int32)
