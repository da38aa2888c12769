"""Masks for PyTorch: tensors for SDPA, and `mask_mod` and `BlockMask` for FlexAttention.

    block = block_mask(Causal() & Window(1024), Grid(segmentation), device="cuda")
    flex_attention(query, key, value, block_mask=block)

`block_mask` equals the result of `create_block_mask`, but finds its tiles from boundaries instead
of evaluating every query and key. Import this module by name, because it needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from tokenmill.load.masks.bias import alibi_slopes
from tokenmill.load.masks.blocks import find_tiles, ordered
from tokenmill.load.masks.forms import check_additive, dense
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.rules import Mask, Tokens, visible, with_tables

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
Device = torch.device | str


def sdpa_mask(mask: Mask, grid: Grid, device: Device = "cpu") -> Tensor:
    """Return True where a query attends to a key: bool, (num_rows, 1, num_queries, row_length).

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    return torch.from_numpy(dense(mask, grid)[:, None]).to(device)


def additive(
    mask: Mask,
    grid: Grid,
    dtype: torch.dtype = torch.float32,
    value: float = -np.inf,
    device: Device = "cpu",
) -> Tensor:
    """Return 0 where a query attends to a key and `value` elsewhere.

    The shape is (num_rows, 1, num_queries, row_length). Use it in SDPA, in the dtype of the
    queries, or as a 4-D `attention_mask` of Hugging Face models.

    Raises:
        UserError: `value` is not a negative number of that dtype, or the grid lacks what the mask
            needs.
    """
    hidden = torch.tensor(value, dtype=torch.float64).to(dtype)
    check_additive(value, hidden.item(), str(dtype))
    seen = sdpa_mask(mask, grid, device)
    return torch.where(seen, torch.zeros((), dtype=dtype, device=device), hidden.to(device))


def mask_mod(mask: Mask, grid: Grid, device: Device = "cpu") -> MaskMod:
    """Return a function (b, h, q_idx, kv_idx) for FlexAttention; `q_idx` 0 is the first query.

    Raises:
        UserError: the grid lacks what the mask needs.
    """
    grid.check(mask)
    rule = with_tables(mask, grid.segmentation.max_length, _on(device))
    keys, first_query = grid.keys, grid.first_query
    names = ("segment", "position", "prefix", "task")
    fields = [getattr(keys, name) for name in names]
    tables = [None if field is None else _on(device)(field) for field in fields]

    def mod(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG001
        q = Tokens(*(None if table is None else table[b, q_idx + first_query] for table in tables))
        k = Tokens(*(None if table is None else table[b, kv_idx] for table in tables))
        seen: Tensor = visible(rule, q, k)
        return seen

    return mod


def block_mask(
    mask: Mask,
    grid: Grid,
    block_size: int | tuple[int, int] = 128,
    device: Device = "cpu",
) -> BlockMask:
    """Return the BlockMask of all rows, for any number of heads.

    Args:
        mask: the mask.
        grid: the rows of the batch.
        block_size: tile size in tokens, or (queries, keys) if they differ.
        device: device of its tensors.

    Raises:
        UserError: the grid lacks what the mask needs, or `block_size` is less than 1.
    """
    sizes = (block_size, block_size) if isinstance(block_size, int) else block_size
    tiles = find_tiles(mask, grid, sizes)
    tables: dict[str, Any] = {}
    for prefix, flags in (("", tiles.partial), ("full_", tiles.full)):
        for side, seen in (("kv", flags), ("q", flags.transpose(0, 2, 1))):
            for name, values in zip(("num_blocks", "indices"), ordered(seen), strict=True):
                # Kernels find the tables of a row by the stride of the axis of heads, which has the
                # size 1. NumPy's stride of such an axis is 0, so PyTorch adds it.
                flat = _on(device)(values.reshape(-1))
                tables[f"{prefix}{side}_{name}"] = flat.view(len(values), 1, *values.shape[1:])
    return BlockMask(
        seq_lengths=(grid.row_length - grid.first_query, grid.row_length),
        BLOCK_SIZE=sizes,
        mask_mod=mask_mod(mask, grid, device),
        **tables,
    )


def alibi_score_mod(grid: Grid, num_heads: int, device: Device = "cpu") -> ScoreMod:
    """Return ALiBi for FlexAttention: score - slope * |q - k|. Use it together with a mask.

    Raises:
        UserError: `num_heads` is less than 1.
    """
    slopes, first_query = _on(device)(alibi_slopes(num_heads)), grid.first_query

    def mod(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:  # noqa: ARG001
        return score - slopes[h] * (q_idx + first_query - kv_idx).abs()

    return mod


def _on(device: Device) -> Callable[[npt.NDArray[Any]], Tensor]:
    """Return a function that makes tensors. On the CPU, they share memory with writable arrays."""

    def tensor(array: npt.NDArray[Any]) -> Tensor:
        # torch.tensor copies with all its threads, which is slow if the cores are busy.
        return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)

    return tensor
