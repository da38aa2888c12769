"""What the examples share: their options, one training step, and checkpoints."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

try:
    import torch
    from torch.nn import functional as F  # noqa: N812
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[torch]'") from error

import tokenmill
from corpus import small_dataset
from model import GPT, GPTConfig


def parse_options(description: str | None) -> argparse.Namespace:
    """The options of all examples."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", help="a dataset with a plan, local or s3://...; else small")
    parser.add_argument("--cache", type=Path, help="folder on a local disk for data of a bucket")
    parser.add_argument("--plan", help="needed if the dataset has several plans")
    parser.add_argument("--out", type=Path, default=Path("examples/out"), help="all that is made")
    parser.add_argument("--steps", type=int, default=100, help="of the whole training")
    parser.add_argument("--interrupt-at", type=int, metavar="STEP", help="save and stop here")
    parser.add_argument("--batch-size", type=int, default=16, help="rows, over all ranks")
    parser.add_argument("--micro-batches", type=int, default=4, help="parts of a step")
    options = parser.parse_args()
    options.stop = min(options.steps, options.interrupt_at or options.steps)
    return options


def open_dataset(options: argparse.Namespace) -> tokenmill.Dataset:
    """The dataset that was named, or the small one."""
    options.out.mkdir(parents=True, exist_ok=True)
    if options.cache is not None:
        return tokenmill.open(options.dataset, cache=options.cache)
    return tokenmill.open(options.dataset or small_dataset(options.out))


def make_model(
    dataset: tokenmill.Dataset, device: torch.device | str = "cpu"
) -> tuple[GPT, torch.optim.Optimizer]:
    """The same model on every run, and its optimizer."""
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=dataset.manifest.tokenizer.largest_id + 1)).to(device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(
    model: GPT,
    optimizer: torch.optim.Optimizer,
    parts: Iterable[dict[str, Any]],
    num_targets: int,
) -> float:
    """One step over the parts of a batch; returns the mean loss of its trained tokens.

    Losses are summed within a part and divided by the labels of the whole batch. Parts have
    different numbers of labels, so that the mean of their means would be another number, and the
    size of a part would change what is learned.
    """
    optimizer.zero_grad()
    mean_loss = 0.0
    for part in parts:
        logits = model(part["input_ids"], part["position_ids"])
        losses = F.cross_entropy(logits.flatten(0, 1), part["labels"].flatten(), reduction="sum")
        loss = losses / num_targets
        loss.backward()
        mean_loss += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return mean_loss


def save_checkpoint(
    path: Path, model: GPT, optimizer: torch.optim.Optimizer, data_state: str
) -> None:
    """Save everything that training goes on from.

    There is no dropout, so there is no random state to keep.
    """
    values = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "data": data_state}
    # Written beside the old one and put in its place, so that there is always a complete one.
    unfinished = path.with_suffix(".unfinished")
    torch.save(values, unfinished)
    os.replace(unfinished, path)


def load_checkpoint(path: Path, model: GPT, optimizer: torch.optim.Optimizer) -> str | None:
    """Go on from a checkpoint, if there is one; returns the state of the data."""
    if not path.exists():
        return None
    values = torch.load(path, weights_only=True)
    model.load_state_dict(values["model"])
    optimizer.load_state_dict(values["optimizer"])
    return values["data"]
