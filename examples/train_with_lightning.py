"""Train a small GPT with Lightning; its own checkpoint holds the place in the data.

python examples/train_with_lightning.py --interrupt-at 30
python examples/train_with_lightning.py    # continues with step 31
"""

from __future__ import annotations

import argparse
from typing import Any

try:
    import lightning
    import torch
    from torch.nn import functional as F  # noqa: N812
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[torch]' lightning") from error

import tokenmill
from training import make_model, open_dataset, parse_options


class PackedData(lightning.LightningDataModule):
    """Batches of a plan. Lightning stores the state of a data module in its checkpoints."""

    def __init__(self, dataset: tokenmill.Dataset, options: argparse.Namespace) -> None:
        super().__init__()
        self.dataset, self.options = dataset, options
        self.state: dict[str, Any] | None = None

    def train_dataloader(self) -> Any:
        """The loader shuffles, batches and divides rows among ranks itself."""
        self.loader = self.dataset.loader(
            self.options.plan,
            global_batch_size=self.options.batch_size,
            rank=self.trainer.global_rank,
            world_size=self.trainer.world_size,
            epochs=None,
            labels="next",
        )
        if self.state is not None:
            self.loader.load_state_dict(self.state)
        return self.loader.dataloader()

    def state_dict(self) -> dict[str, Any]:
        """The place after the step that was trained last: Lightning fetches a batch ahead."""
        return self.loader.state_dict(self.trainer.fit_loop.total_batch_idx + 1)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called before the loader is opened."""
        self.state = state


class SmallGPT(lightning.LightningModule):
    """The examples' model; each step prints its loss."""

    def __init__(self, dataset: tokenmill.Dataset) -> None:
        super().__init__()
        self.model, self.optimizer = make_model(dataset)

    def training_step(self, batch: dict[str, Any], _index: int) -> torch.Tensor:
        """The mean loss of the labels of this batch."""
        logits = self.model(batch["input_ids"], batch["position_ids"])
        loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
        print(f"step {self.global_step + 1} loss {loss.item()!r}", flush=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """One optimizer, without a schedule."""
        return self.optimizer


def main() -> None:
    """Train; the last checkpoint is `lightning.ckpt` in the output folder."""
    options = parse_options(__doc__)
    dataset = open_dataset(options)
    checkpoint = options.out / "lightning.ckpt"
    trainer = lightning.Trainer(
        max_steps=options.stop,
        use_distributed_sampler=False,  # the loader has divided the rows
        accelerator="auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    resumed = str(checkpoint) if checkpoint.exists() else None
    trainer.fit(
        SmallGPT(dataset), PackedData(dataset, options), ckpt_path=resumed, weights_only=True
    )
    trainer.save_checkpoint(checkpoint)


if __name__ == "__main__":
    main()
