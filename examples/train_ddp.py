"""Train a small GPT on several GPUs (or processes), stop, and continue on another number of them.

    torchrun --standalone --nproc-per-node 4 examples/train_ddp.py --interrupt-at 30
    torchrun --standalone --nproc-per-node 2 examples/train_ddp.py

Without `--dataset` it builds a small one. The dataset may lie in a bucket; its blocks are then kept
in a local cache:

    torchrun --standalone --nproc-per-node 4 examples/train_ddp.py \
        --dataset s3://bucket/corpus --cache /tmp/cache

Each step prints an id of its global batch, which is the same for any number of ranks, and the loss.
Gradients are summed in an order that depends on the number of ranks, so losses agree to about six
digits.
"""

from __future__ import annotations

import json
import os
from itertools import islice

try:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[torch]'") from error

from training import (
    load_checkpoint,
    make_model,
    open_dataset,
    parse_options,
    save_checkpoint,
    train_step,
)


def main() -> None:
    """Train on this rank's part of each global batch."""
    options = parse_options(__doc__)
    device = join_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        open_dataset(options)  # builds the small one if none was named
    dist.barrier()
    dataset = open_dataset(options)
    loader = dataset.loader(
        options.plan,
        global_batch_size=options.batch_size,
        rank=rank,
        world_size=world_size,
        epochs=None,
        labels="next",
        columns=("input_ids", "labels", "position_ids", "num_targets"),
    )
    model, optimizer = make_model(dataset, device)
    checkpoint = options.out / "train.pt"
    state = load_checkpoint(checkpoint, model, optimizer)
    if state is not None:
        loader.load_state_dict(json.loads(state))
    parallel = DistributedDataParallel(model)
    for batch in islice(loader, max(options.stop - loader.step, 0)):
        # The mean over ranks of sums over this mean is the sum over the labels of all ranks.
        num_targets = mean_over_ranks(batch["num_targets"], device)
        part = {
            name: value.to(device, non_blocking=True) if torch.is_tensor(value) else value
            for name, value in batch.items()
        }
        loss = mean_over_ranks(train_step(parallel, optimizer, [part], num_targets), device)
        if rank == 0:
            name = loader.digest(loader.step - 1)[:16]
            print(f"step {loader.step} batch {name} loss {loss:.6f}", flush=True)
    if rank == 0:
        save_checkpoint(checkpoint, model, optimizer, json.dumps(loader.state_dict()))
    dist.barrier()
    dist.destroy_process_group()


def join_process_group() -> torch.device:
    """Join the other ranks; returns this rank's GPU, or the CPU if there is none."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    return device


def mean_over_ranks(value: float, device: torch.device) -> float:
    """The mean of a number over all ranks."""
    total = torch.tensor(float(value), dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


if __name__ == "__main__":
    main()
