"""Train a small GPT with Ray Train: ranks take their rows, a lost worker costs a few steps.

    python examples/cluster/ray_train.py --workers 2 --steps 40
    python examples/cluster/ray_train.py --workers 3 --steps 80    # goes on, with three workers

Each line of OUT/batches.txt is a step, the digest of what all its ranks were given together, and
the loss. A worker that dies, and another number of workers, leave the batches as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
from torch import distributed

import tokenmill

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(EXAMPLES))  # on this machine, and in each worker
STEPS_PER_CHECKPOINT = 5


def train_on_rank(config: dict[str, Any]) -> None:
    """What each worker does."""
    sys.path.insert(0, str(EXAMPLES))
    from training import make_model, train_step

    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    dataset = tokenmill.open(config["dataset"])
    loader = dataset.loader(
        global_batch_size=config["batch_size"],
        rank=rank,
        world_size=world_size,
        epochs=None,
        labels="next",
        columns=("input_ids", "labels", "position_ids", "num_targets"),
    )
    model, optimizer = make_model(dataset)
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "train.pt", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(json.loads(saved["loader"]))
    parallel = prepare_model(model)

    for batch in islice(loader, max(config["steps"] - loader.step, 0)):
        targets = torch.tensor(batch["num_targets"])
        digest = digest_of_step(batch, world_size)
        distributed.all_reduce(targets)
        # Gradients are averaged over ranks; the loss is a mean over the labels of all of them.
        loss = torch.tensor(train_step(parallel, optimizer, [batch], int(targets) / world_size))
        distributed.all_reduce(loss)
        if rank == 0:
            with open(config["log"], "a") as log:
                log.write(f"{loader.step} {digest} {loss.item() / world_size:.6f}\n")
        if loader.step % STEPS_PER_CHECKPOINT == 0 or loader.step == config["steps"]:
            report(rank, loader, model, optimizer)


def digest_of_step(batch: dict[str, Any], world_size: int) -> str:
    """A digest of the rows of all ranks, whichever rank has which."""
    own = [
        hashlib.sha256(ids.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
        for ids, labels in zip(batch["input_ids"], batch["labels"], strict=True)
    ]
    of_ranks: list[list[str]] = [[] for _ in range(world_size)]
    distributed.all_gather_object(of_ranks, own)
    rows = sorted(row for rows in of_ranks for row in rows)
    return hashlib.sha256("".join(rows).encode()).hexdigest()[:32]


def report(rank: int, loader: Any, model: Any, optimizer: Any) -> None:
    """Store a checkpoint; the state of the loader is the same on every rank."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if rank == 0:
            values = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state = json.dumps(loader.state_dict())
            torch.save({**values, "loader": state}, Path(folder) / "train.pt")
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"step": loader.step}, checkpoint=checkpoint)


def main() -> None:
    """Start the workers; the same command goes on from the last checkpoint."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", help="a dataset with a plan, which all nodes see; else small")
    parser.add_argument("--out", type=Path, default=Path("examples/out/ray"), help="shared folder")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=12, help="rows of a step, of all ranks")
    options = parser.parse_args()
    from corpus import small_dataset

    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    dataset = options.dataset or str(small_dataset(out))
    trainer = TorchTrainer(
        train_on_rank,
        train_loop_config={
            "dataset": dataset,
            "steps": options.steps,
            "batch_size": options.batch_size,
            "log": str(out / "batches.txt"),
        },
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers),
        run_config=ray.train.RunConfig(
            name="training",
            storage_path=str(out),
            failure_config=ray.train.FailureConfig(max_failures=3),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
    main()
