"""Train on several ranks from a dataset in a bucket, stop, and go on with another number of them.

    tokenmill cp examples/out/corpus s3://bucket/corpus
    torchrun --standalone --nproc-per-node 2 examples/train_from_bucket.py \
        --dataset s3://bucket/corpus --cache /tmp/cache --interrupt-at 30
    torchrun --standalone --nproc-per-node 4 examples/train_from_bucket.py \
        --dataset s3://bucket/corpus --cache /tmp/cache

Each step prints an id of its global batch, which is the same for any number of ranks, and the loss.
Sums of gradients depend on who adds what, so losses are the same to about six digits.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[torch]'") from error

import tokenmill
from training import load_checkpoint, make_model, save_checkpoint, train_step


def main() -> None:
    """Train this rank's part of each batch."""
    options = parse_options()
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    dataset = tokenmill.open(
        options.dataset, cache=options.cache, cache_bytes=options.cache_bytes or None
    )
    loader = dataset.loader(
        options.plan,
        global_batch_size=options.global_batch_size,
        rank=rank,
        world_size=world_size,
        epochs=None,
        labels="next",
        columns=("input_ids", "labels", "position_ids", "num_targets"),
    )
    model, optimizer = make_model(dataset)
    checkpoint = options.out / "train.pt"
    state = load_checkpoint(checkpoint, model, optimizer)
    if state is not None:
        loader.load_state_dict(json.loads(state))
    parallel = DistributedDataParallel(model)
    for batch in islice(loader, max(options.stop - loader.step, 0)):
        # The mean over ranks of sums over this mean is the sum over the labels of all ranks.
        num_targets = mean_over_ranks(batch["num_targets"])
        loss = mean_over_ranks(train_step(parallel, optimizer, [batch], num_targets))
        if rank == 0:
            name = loader.digest(loader.step - 1)[:16]
            print(f"step {loader.step} batch {name} loss {loss:.6f}", flush=True)
    if rank == 0:
        save_checkpoint(checkpoint, model, optimizer, json.dumps(loader.state_dict()))
    dist.barrier()
    dist.destroy_process_group()


def mean_over_ranks(value: float) -> float:
    """The mean of a number over all ranks."""
    total = torch.tensor(float(value), dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def parse_options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", required=True, help="s3://..., gs://... or az://...")
    parser.add_argument("--cache", type=Path, required=True, help="a folder on a local disk")
    parser.add_argument("--cache-bytes", default="", help='of each rank, as "200GB"')
    parser.add_argument("--plan", help="a name, where the dataset has several plans")
    parser.add_argument("--out", type=Path, default=Path("examples/out"))
    parser.add_argument("--steps", type=int, default=100, help="of the whole training")
    parser.add_argument("--interrupt-at", type=int, metavar="STEP", help="save and stop here")
    parser.add_argument("--global-batch-size", type=int, default=16, help="rows over all ranks")
    options = parser.parse_args()
    options.stop = min(options.steps, options.interrupt_at or options.steps)
    options.out.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
