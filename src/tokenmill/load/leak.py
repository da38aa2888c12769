"""How far a model lets a document in a row depend on the document before it."""

from __future__ import annotations

from typing import Any

import torch

from tokenmill.load.columns import Batch


def leak(model: Any, one: Batch, other: Batch, *, first: int) -> float:
    """How much the logits from token `first` on change, relative to those before it.

    Args:
        model: of transformers; its mode is kept.
        one: a batch of a few tokens, as the model is to be given them.
        other: the same batch with other tokens before `first`.
        first: where the second document of each row begins.
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
