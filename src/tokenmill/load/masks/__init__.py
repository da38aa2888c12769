"""Attention masks: define a mask once, and get it in the form that a library needs.

    rules        which keys a query attends to            Causal() & (Window(1024) | Sinks(4))
    grid         the queries and keys of a batch          Grid(segmentation)
    forms        dense: bool, multiplicative, additive, inverted
    varlen       boundaries only: cu_seqlens, seqlens, position_ids, seq_idx
    windows      the window size that each library expects
    blocks       which tiles are empty, full or partial
    bias         ALiBi and relative-position buckets
    torch_forms  for SDPA and FlexAttention

`torch_forms` needs PyTorch, so it must be imported by name.
"""

from __future__ import annotations

from tokenmill.load.masks import bias, blocks, forms, varlen, windows  # users name them
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.rules import (
    Bidirectional,
    Blocks,
    Causal,
    Chunks,
    GlobalTokens,
    Mask,
    Prefix,
    RandomBlocks,
    Sinks,
    Task,
    Window,
    by_source,
)

__all__ = [
    "Bidirectional",
    "Blocks",
    "Causal",
    "Chunks",
    "GlobalTokens",
    "Grid",
    "Mask",
    "Prefix",
    "RandomBlocks",
    "Sinks",
    "Task",
    "Window",
    "bias",
    "blocks",
    "by_source",
    "forms",
    "varlen",
    "windows",
]
