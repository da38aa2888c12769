"""Measure how much a model lets a document in a row depend on the document before it."""

from __future__ import annotations

from typing import Any

import torch

from tokenmill.load.columns import Batch


def leak(model: Any, one: Batch, other: Batch, *, first: int) -> float:
    """Return how much the logits from token `first` on change, relative to those before it.

    Args:
        model: a model of transformers. It runs in evaluation mode; its mode is restored.
        one: a batch of a few tokens, as passed to the model.
        other: the same batch with other tokens before `first`.
        first: position at which the second document of each row starts.
    """
    was_training = model.training
    model.eval()  # without dropout
    try:
        with torch.no_grad():
            found, changed = (model(**_on(model.device, batch)).logits for batch in (one, other))
    finally:
        model.train(was_training)
    differences = (found - changed).abs().float()
    own = differences[:, :first].max()
    return float(differences[:, first:].max() / own)


def _on(device: torch.device, batch: Batch) -> Batch:
    return {
        name: value.to(device) if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }
