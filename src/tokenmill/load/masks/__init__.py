"""Masks: defined once, and given to each consumer in its own form.

    rules        what a query sees inside its segment     Causal() & (Window(1024) | Sinks(4))
    definition   how rules are combined, and the law above them
    grid         the queries and keys of a batch          Grid(segmentation)
    forms        dense: bool, multiplicative, additive, inverted
    varlen       boundaries only: cu_seqlens, seqlens, position_ids, seq_idx
    windows      a window as each consumer counts it
    blocks       which tiles are empty, full or partial; `spans` decides them
    bias         ALiBi and relative-position buckets
    torch_forms  for SDPA and FlexAttention

The last one needs torch and is imported by its name only.
"""

from __future__ import annotations

from tokenmill.load.masks import bias, blocks, forms, varlen, windows
from tokenmill.load.masks.definition import Mask
from tokenmill.load.masks.grid import Grid
from tokenmill.load.masks.rules import (
    Bidirectional,
    Blocks,
    Causal,
    Chunks,
    GlobalTokens,
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
