"""Every form of a mask says the same: each is turned back into the dense one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
import torch
from attention_kit import BANDS, MASKS, grid_of, grids
from hypothesis import given, settings
from torch.nn.attention.flex_attention import BlockMask, create_mask

from tokenmill.core.errors import UserError
from tokenmill.load.masks import (
    Bidirectional,
    Causal,
    Chunks,
    Grid,
    Mask,
    Prefix,
    Sinks,
    Window,
    torch_forms,
    varlen,
    windows,
)
from tokenmill.load.masks.forms import additive, dense, inverted, multiplicative, padding_mask
from tokenmill.load.masks.rules import GlobalTokens

BoolArray = npt.NDArray[np.bool_]

masks = pytest.mark.parametrize("mask", MASKS, ids=repr)
bands = pytest.mark.parametrize("mask", BANDS, ids=repr)
any_grid = given(grid=grids())
uncached = given(grid=grids(cached=False))
with_rows = given(grid=grids().filter(lambda grid: grid.num_rows > 0))
few = settings(max_examples=12, deadline=None)


# Dense forms.


def test_dense_forms_of_a_row() -> None:
    grid = grid_of([[2, 1]], 3)
    assert dense(Causal(), grid).astype(int).tolist() == [[[1, 0, 0], [1, 1, 0], [0, 0, 1]]]
    assert multiplicative(Causal(), grid).tolist() == [[[1, 0, 0], [1, 1, 0], [0, 0, 1]]]
    assert additive(Causal(), grid, np.float16, -9).tolist() == [
        [[0, -9, -9], [0, 0, -9], [-9, -9, 0]]
    ]
    assert inverted(Causal(), grid).astype(int).tolist() == [[[[0, 1, 1], [0, 0, 1], [1, 1, 0]]]]


@masks
@any_grid
@few
def test_dense_forms_say_the_same(mask: Mask, grid: Grid) -> None:
    seen = dense(mask, grid)
    assert np.array_equal(~inverted(mask, grid)[:, 0], seen)
    assert np.array_equal(multiplicative(mask, grid, np.int8) == 1, seen)
    for value in (-np.inf, -1e4):
        scores = additive(mask, grid, np.float16, value)
        assert scores.dtype == np.float16
        assert np.array_equal(scores, np.where(seen, 0, value))
    lowest = torch.finfo(torch.bfloat16).min
    tensor = torch_forms.additive(mask, grid, torch.bfloat16, lowest)
    assert tensor.dtype == torch.bfloat16
    assert np.array_equal((tensor == 0).numpy()[:, 0], seen)
    assert np.array_equal((tensor == lowest).numpy()[:, 0], ~seen)
    assert np.array_equal(torch_forms.sdpa_mask(mask, grid).numpy()[:, 0], seen)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(-1e9, "float16"), (0.0, "float32"), (1.0, "float32"), (float("nan"), "float32")],
)
def test_a_value_that_does_not_hide_keys_is_refused(value: float, dtype: str) -> None:
    with pytest.raises(UserError, match="invalid value for an additive mask"):
        additive(Causal(), grid_of([[2]], 2), dtype, value)
    with pytest.raises(UserError, match="invalid value for an additive mask"):
        torch_forms.additive(Causal(), grid_of([[2]], 2), getattr(torch, dtype), value)


def test_a_padding_mask_is_for_rows_of_one_segment() -> None:
    assert padding_mask(grid_of([[2], [3], []], 3)).tolist() == [[1, 1, 0], [1, 1, 1], [0, 0, 0]]
    with pytest.raises(UserError, match="cannot keep segments apart\n  where: row 1"):
        padding_mask(grid_of([[2], [1, 1]], 3))


# FlexAttention.


@masks
@with_rows
@few
def test_mask_mods_and_block_masks_say_the_same(mask: Mask, grid: Grid) -> None:
    seen = dense(mask, grid)
    mod = torch_forms.mask_mod(mask, grid)
    asked = create_mask(mod, grid.num_rows, None, *seen.shape[1:], device="cpu")
    assert np.array_equal(asked.numpy()[:, 0], seen)
    made = torch_forms.block_mask(mask, grid, (8, 4))
    assert np.array_equal(of_block_mask(made, asked.numpy()[:, 0]), seen)


def of_block_mask(made: BlockMask, asked: BoolArray) -> BoolArray:
    """What a kernel computes: all of full tiles, what it asks for in partial ones, else nothing."""
    tables = (
        (made.full_kv_num_blocks, made.full_kv_indices),
        (made.kv_num_blocks, made.kv_indices),
    )
    seen = np.zeros_like(asked)
    for full, (counts, indices) in zip((True, False), tables, strict=True):
        for row in range(len(asked)):
            for tile in range(counts.shape[-1]):
                for key_tile in indices[row, 0, tile, : int(counts[row, 0, tile])].tolist():
                    at = (
                        row,
                        slice(tile * made.BLOCK_SIZE[0], (tile + 1) * made.BLOCK_SIZE[0]),
                        slice(key_tile * made.BLOCK_SIZE[1], (key_tile + 1) * made.BLOCK_SIZE[1]),
                    )
                    seen[at] = True if full else asked[at]
    return seen


# Boundaries.


@bands
@any_grid
@few
def test_what_flash_attention_computes_is_the_dense_mask(mask: Mask, grid: Grid) -> None:
    found = varlen.flash_varlen(mask, grid)
    edges = (found["cu_seqlens_q"].tolist(), found["cu_seqlens_k"].tolist())
    left, right = found["window_size"]
    if found["causal"]:
        right = 0
    total = of_edges(
        *edges, lambda ahead: (left < 0 or ahead >= -left) and (right < 0 or ahead <= right)
    )
    assert np.array_equal(total, flattened(dense(mask, grid)))
    longest = tuple(max((b - a for a, b in pairwise(side)), default=0) for side in edges)
    assert (found["max_seqlen_q"], found["max_seqlen_k"]) == longest


@bands
@any_grid
@few
def test_what_xformers_computes_is_the_dense_mask(mask: Mask, grid: Grid) -> None:
    q_seqlen, kv_seqlen = varlen.xformers_seqlens(mask, grid)
    edges = ([0, *np.cumsum(side).tolist()] for side in (q_seqlen, kv_seqlen))
    found = windows.band(mask, "xformers")
    inside = lambda ahead: (  # noqa: E731
        (found.left is None or -ahead <= found.left)
        and (found.right is None or ahead <= found.right)
    )
    assert np.array_equal(of_edges(*edges, inside), flattened(dense(mask, grid)))


def of_edges(q_edges: list[int], k_edges: list[int], inside: Callable[[int], bool]) -> BoolArray:
    """Kernels of variable length: segments aligned at their ends, keys `ahead` of the query."""
    seen = np.zeros((q_edges[-1], k_edges[-1]), np.bool_)
    for (q_start, q_stop), (k_start, k_stop) in zip(
        pairwise(q_edges), pairwise(k_edges), strict=True
    ):
        for q in range(q_start, q_stop):
            place = k_stop - (q_stop - q)
            for k in range(k_start, k_stop):
                seen[q, k] = inside(k - place)
    return seen


def flattened(seen: BoolArray) -> BoolArray:
    """Rows one after another, as one row."""
    rows, num_queries, num_keys = seen.shape
    total = np.zeros((rows, num_queries, rows, num_keys), np.bool_)
    for row in range(rows):
        total[row, :, row] = seen[row]
    return total.reshape(rows * num_queries, rows * num_keys)


@given(grid=grids(cached=False).filter(lambda grid: grid.num_rows > 0))
@few
def test_transformers_finds_the_same_segments(grid: Grid) -> None:
    masking = pytest.importorskip("transformers.masking_utils")
    flash = pytest.importorskip("transformers.modeling_flash_attention_utils")
    positions = torch.from_numpy(varlen.position_ids(Causal(), grid))
    found = masking.find_packed_sequence_indices(positions)
    numbers = np.zeros(positions.shape) if found is None else found.numpy()
    assert np.array_equal(numbers, varlen.seq_idx(grid))
    (edges, _), (longest, _) = flash.prepare_fa_kwargs_from_position_ids(positions.view(1, -1))
    ours = varlen.hf_flash_kwargs(Causal(), grid)
    assert edges.tolist() == ours["cu_seq_lens_q"].tolist()
    assert int(longest) == ours["max_length_q"]


@uncached
@few
def test_megatron_sees_what_the_dense_mask_shows(grid: Grid) -> None:
    """With padding between segments, padding has no queries and is no key."""
    seen = flattened(dense(Causal(), grid))
    params = varlen.megatron_packed_seq_params(Causal(), grid)
    edges = params["cu_seqlens_q_padded"].tolist()
    assert np.array_equal(of_edges(edges, edges, lambda ahead: ahead <= 0), seen)
    params = varlen.megatron_packed_seq_params(Causal(), grid, padding_between=True)
    between = np.zeros_like(seen)
    lengths = np.diff(params["cu_seqlens_q"]).tolist()
    for start, length in zip(params["cu_seqlens_q_padded"].tolist(), lengths, strict=False):
        own = slice(start, start + length)
        between[own, own] = np.tril(np.ones((length, length), np.bool_))
    real = (grid.segmentation.ids >= 0).reshape(-1)
    assert np.array_equal(between, seen & real[:, None])
    assert params["cu_seqlens_q_padded"][-1] == len(seen)


# What a consumer cannot express.


NOT_BANDS = [
    Causal() | Prefix(),
    Causal() & (Window(4) | Sinks(1)),
    Window(2, dilation=2),
    GlobalTokens((0,)),
    Causal() & Chunks(4),
    ~Causal(),
]


@pytest.mark.parametrize("mask", NOT_BANDS, ids=repr)
@pytest.mark.parametrize(
    "form",
    [
        varlen.flash_varlen,
        varlen.hf_flash_kwargs,
        varlen.xformers_seqlens,
        varlen.position_ids,
        varlen.megatron_packed_seq_params,
    ],
)
def test_a_consumer_that_cannot_express_a_mask_is_refused_it(
    form: Callable[[Mask, Grid], object], mask: Mask
) -> None:
    with pytest.raises(UserError, match="cannot express this mask") as caught:
        form(mask, grid_of([[2]], 3, prefix_lengths=[1, 0]))
    assert caught.value.where == repr(mask)
    assert caught.value.why
    assert caught.value.hint


def test_padding_between_segments_needs_all_queries() -> None:
    with pytest.raises(UserError, match="needs all tokens as queries"):
        varlen.megatron_packed_seq_params(
            Causal(), grid_of([[2]], 3, num_queries=1), padding_between=True
        )


# Windows.


def test_a_window_as_each_consumer_counts_it() -> None:
    assert windows.keys_in_window(Window(4)) == 4  # Hugging Face, xformers, torchtitan's flex
    assert windows.keys_before(Window(4)) == 3  # attention-gym, llm-foundry
    assert windows.flash_window(Window(4)) == (3, 0)
    assert windows.flash_window(Window(4, both_sides=True)) == (3, 3)
    assert windows.flash_window(Causal()) == (-1, 0)
    assert windows.flash_window(Bidirectional()) == (-1, -1)
    assert windows.keys_in_window(Causal()) is None
    assert windows.keys_in_window(Window(9) & Causal() & Window(4, both_sides=True)) == 4
    with pytest.raises(UserError, match="sliding_window needs a causal mask"):
        windows.keys_in_window(Window(4, both_sides=True))
