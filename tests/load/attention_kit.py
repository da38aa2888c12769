"""Rows with segments, masks as pictures, and a small transformer that takes any mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from tokenmill.load.masks import (
    Bidirectional,
    Blocks,
    Causal,
    Chunks,
    GlobalTokens,
    Grid,
    Mask,
    Prefix,
    RandomBlocks,
    Sinks,
    Window,
    by_source,
)
from tokenmill.load.masks.forms import dense
from tokenmill.load.masks.torch_forms import additive
from tokenmill.load.rows.segmentation import Segmentation

BANDS: list[Mask] = [
    Bidirectional(),
    Causal(),
    Window(3),
    Causal() & Window(5),
    Window(3, both_sides=True),
]
"""What kernels know that are given boundaries only."""

MASKS: list[Mask] = [
    *BANDS,
    Window(3, dilation=2),
    Window(20, dilation=5, both_sides=True),
    Causal() & (Window(4) | Sinks(2)),
    Window(2) | GlobalTokens((0, 5)),
    Causal() | Prefix(),
    Causal() & Chunks(7),
    ~Causal(),
    Blocks(4, ((0, 0), (1, 0), (2, 1), (3, 3), (5, 0))),
    Causal() & (RandomBlocks(4, 2, seed=7) | Window(6)),
    RandomBlocks(16, 1, seed=1) | GlobalTokens((3,)),
    by_source({1: Causal() | Prefix(), 2: Window(3)}, otherwise=Causal()),
]
"""Every rule, and combinations."""


def grid_of(
    rows: list[list[int]],
    row_length: int,
    num_queries: int | None = None,
    *,
    prefix_lengths: Sequence[int] | None = None,
    tasks: Sequence[int] | None = None,
) -> Grid:
    """Rows given by the lengths of their segments; the rest of a row is padding."""
    return Grid(
        Segmentation.of_lengths(rows, row_length),
        num_queries,
        None if prefix_lengths is None else np.array(prefix_lengths),
        None if tasks is None else np.array(tasks),
    )


def attention_inputs(
    mask: Mask,
    grid: Grid,
    heads: int,
    size: int = 16,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random queries, keys and values, and the mask as scores."""
    generator = torch.Generator(device).manual_seed(3)
    num_queries = grid.row_length - grid.first_query
    q, k, v = (
        torch.randn(grid.num_rows, heads, n, size, generator=generator, dtype=dtype, device=device)
        for n in (num_queries, grid.row_length, grid.row_length)
    )
    return q, k, v, additive(mask, grid, dtype, device=device)


def picture(mask: Mask, grid: Grid) -> list[str]:
    """One string a query, `x` for each key that it sees; all rows of the batch one by one."""
    seen = dense(mask, grid).reshape(-1, grid.row_length)
    return ["".join("x" if key else "." for key in query) for query in seen]


@st.composite
def grids(draw: st.DrawFn, longest: int = 40, *, cached: bool = True) -> Grid:
    """Some rows: full, empty, of single tokens; with all queries or fewer."""
    row_length = draw(st.integers(1, longest))
    rows = []
    for _ in range(draw(st.integers(0, 3))):
        row: list[int] = []
        while sum(row) < row_length and draw(st.integers(0, 4)):
            row.append(draw(st.integers(1, row_length - sum(row))))
        rows.append(row)
    segmentation = Segmentation.of_lengths(rows, row_length)
    numbers = st.lists(st.integers(0, 9), min_size=len(segmentation), max_size=len(segmentation))
    return Grid(
        segmentation,
        draw(st.none() | st.integers(1, row_length)) if cached else None,
        np.array(draw(numbers), np.int64),
        np.array(draw(numbers), np.int64) % 4,
    )


class TinyTransformer(nn.Module):
    """Two layers in float64, with learned positions; whatever is masked comes in as scores."""

    def __init__(self, vocabulary: int = 32, width: int = 16, heads: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.heads, self.size = heads, 4
        self.embed = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(128, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(width, 3 * heads * self.size),
                    "out": nn.Linear(heads * self.size, width),
                    "up": nn.Linear(width, 2 * width),
                    "down": nn.Linear(2 * width, width),
                }
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, vocabulary)
        self.double()

    def forward(self, ids: Tensor, positions: Tensor, scores: Tensor) -> Tensor:
        """Logits; `scores` are added before the softmax, (rows, 1 or heads, L, L)."""
        return self.from_embedded(self.embed(ids), positions, scores)

    def from_embedded(self, x: Tensor, positions: Tensor, scores: Tensor) -> Tensor:
        x = x + self.places(positions)
        for layer in self.layers:
            rows, length, _ = x.shape
            q, k, v = (
                part.view(rows, length, self.heads, self.size).transpose(1, 2)
                for part in layer["qkv"](nn.functional.layer_norm(x, x.shape[-1:])).chunk(3, -1)
            )
            weights = (q @ k.transpose(-1, -2) / self.size**0.5 + scores).softmax(-1)
            x = x + layer["out"]((weights @ v).transpose(1, 2).reshape(rows, length, -1))
            x = x + layer["down"](torch.tanh(layer["up"](x)))
        return self.head(x)
