"""Segment boundaries, for kernels that apply causality and windows by themselves.

Two segments of 3 and 2 tokens, and one of padding:

    cu_seqlens     0 3 5 6             position_ids   0 1 2 0 1 0
    seqlens        3 2 1               seq_idx        0 0 0 1 1 2

Padding is a segment, too. The rows of a batch are joined into one row. Functions with a mask raise
an error if the kernel cannot express it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int32Array, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.rules import Mask
from tokenmill.load.masks.windows import band, flash_window
from tokenmill.load.rows.segmentation import Segmentation


def flash_varlen(mask: Mask, grid: Grid, num_segments: int | None = None) -> dict[str, Any]:
    """Return arguments of `flash_attn_varlen_func`: cu_seqlens, int32 of (num_segments + 1,), etc.

    Pass `num_segments` to pad with empty segments, so that shapes do not change. As in flash-attn,
    queries and keys are aligned at the end of each segment. Versions 2 to 4 take these arguments;
    for PyTorch's `varlen_attn`, which has no `causal`, take `window_size` from `flash_window`.

    Raises:
        UserError: the mask is more than causality and a window, or there are more segments.
    """
    found = band(mask, "flash_attn_varlen_func")
    q, k = _edges(grid, num_segments)
    # Version 4 takes a bound of -1 for a distance unless both are -1; `causal` says the rest.
    window = (-1, -1) if found.left is None else flash_window(mask)
    return {
        "cu_seqlens_q": q,
        "cu_seqlens_k": k,
        "max_seqlen_q": int(grid.query_lengths.max(initial=0)),
        "max_seqlen_k": grid.segmentation.max_length,
        "causal": found.causal,
        "window_size": window,
    }


def hf_flash_kwargs(mask: Mask, grid: Grid, num_segments: int | None = None) -> dict[str, Any]:
    """Return `cu_seq_lens_q/k` (int32) and `max_length_q/k` (ints) for Hugging Face models.

    Do not pass an attention_mask, because it would take precedence. Set a window in the model's
    configuration (`sliding_window`).

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
    """Return lengths for xformers' `BlockDiagonal...Mask.from_seqlens(q_seqlen, kv_seqlen)`.

    For a causal mask, use `BlockDiagonalCausalMask`, or `BlockDiagonalCausalFromBottomRightMask` if
    there are fewer queries than keys. For windows, see `windows.keys_in_window`.

    Raises:
        UserError: the mask is more than causality and a window.
    """
    band(mask, "xformers seqlens")
    return grid.query_lengths.tolist(), grid.segmentation.lengths.tolist()


def position_ids(mask: Mask, grid: Grid) -> Int64Array:
    """Return positions from which Hugging Face models find segments, (num_rows, num_queries).

    They start at 0 in each segment. Do not pass an attention_mask, not even one of ones. With
    FlashAttention, the models only use positions of a batch of one row: flatten them with
    `.reshape(1, -1)`.

    Raises:
        UserError: the mask is more than causality and a window, or keys are cached. Use a 4-D mask
            instead.
    """
    if not band(mask, "position_ids").causal:
        raise UserError("position_ids only work with causal masks", where=repr(mask))
    if grid.first_query:
        hint = "use a 4-D mask: torch_forms.additive"
        raise UserError("position_ids cannot show where cached segments start", hint=hint)
    return grid.segmentation.positions.astype(np.int64)


def of_position_ids(positions: Int64Array) -> Segmentation:
    """Return the segments that Hugging Face models find. None of them is marked as padding.

    Args:
        positions: shape (num_rows, row_length). A segment starts at each position that is not the
            previous one plus 1.
    """
    begins = np.ones(positions.shape, np.bool_)
    begins[:, 1:] = np.diff(positions, axis=1) != 1
    edges = np.append(np.flatnonzero(begins), positions.size).astype(np.int32)
    num_rows, row_length = positions.shape
    return Segmentation(num_rows, row_length, edges, np.zeros(len(edges) - 1, np.bool_))


def megatron_packed_seq_params(
    mask: Mask, grid: Grid, *, padding_between: bool = False
) -> dict[str, Any]:
    """Return the fields of Megatron's `PackedSeqParams`; cu_seqlens are int32.

    With `padding_between`, padding belongs to the segment before it, and kernels can skip it:
    `cu_seqlens_q` counts tokens, and `cu_seqlens_q_padded` counts positions. Otherwise both are
    equal.

    Raises:
        UserError: the mask is more than causality and a window, or there are fewer queries than
            keys with `padding_between`.
    """
    band(mask, "PackedSeqParams")
    q, k = _edges(grid, None)
    if not padding_between:
        edges = {"cu_seqlens_q": q, "cu_seqlens_q_padded": q}
        edges |= {"cu_seqlens_kv": k, "cu_seqlens_kv_padded": k}
    elif grid.first_query:
        raise UserError("padding_between needs all tokens as queries")
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
    """Return the number of each token's segment for Mamba, shape (num_rows, row_length).

    Segments are counted from 0 in each row, including padding. State-space layers and their
    convolutions restart when the number changes.
    """
    segments, rows = grid.keys.segment, grid.segmentation.rows
    firsts = np.searchsorted(rows, np.arange(grid.num_rows)).astype(np.int32)
    return np.asarray(segments - firsts[:, None], np.int32)


def _edges(grid: Grid, num_segments: int | None) -> tuple[Int32Array, Int32Array]:
    """Return the edges of the queries and of the keys of each segment.

    Segments without queries are included.
    """
    segmentation = grid.segmentation
    keys = segmentation.padded_edges(len(segmentation) if num_segments is None else num_segments)
    counts = np.zeros(len(keys) - 1, np.int32)
    counts[: len(segmentation)] = grid.query_lengths
    return offsets_from_lengths(counts).astype(np.int32), keys


def _joined_padding(segmentation: Segmentation) -> tuple[Int32Array, Int32Array]:
    """Return the edges of tokens, and the edges of positions with padding after its segment."""
    edges, is_padding = segmentation.edges, segmentation.is_padding
    firsts = ~is_padding
    firsts[:1] = True  # leading padding becomes a segment without tokens
    places = np.append(edges[:-1][firsts], edges[-1])
    tokens = np.where(is_padding, 0, segmentation.lengths)[firsts]
    return offsets_from_lengths(tokens).astype(np.int32), places.astype(np.int32)
