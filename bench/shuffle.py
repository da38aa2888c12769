"""Measure how well the loader's orders shuffle, and how local their reads are.

For each order, over the first epoch of a plan:

- spread: entropy of the distance in the plan between neighbours in the order, in 32 classes of
  equal width, divided by that of independent uniform positions; 1 is random, 0 is corpus order;
- run: mean number of consecutive rows that start in the same shard;
- correlation: correlation of the number of segments of consecutive rows;
- sources: mean number of different shards that the rows of a batch of 256 start in;
- reach: share of the plan that 65,536 consecutive rows come from, which a cache must hold.

    python bench/shuffle.py --dataset CORPUS --plan best-fit-1024
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import measure

ORDERS = ("global", "blocks", "none")
CLASSES = 32
BATCH = 256
REACH = 65_536


def spread(order: np.ndarray) -> float:
    """Entropy of neighbours' distances against that of independent places."""
    distances = np.abs(np.diff(order)) / len(order)
    counts = np.histogram(distances, CLASSES, (0, 1))[0] / len(distances)
    edges = np.linspace(0, 1, CLASSES + 1)
    expected = np.diff(2 * edges - edges**2)  # of the distance of two uniform places
    return float(entropy(counts) / entropy(expected))


def entropy(shares: np.ndarray) -> float:
    some = shares[shares > 0]
    return float(-(some * np.log(some)).sum())


def shards_of(dataset, plan) -> np.ndarray:
    """Shape (num_sequences,): the shard in which each sequence begins."""
    ends = np.cumsum([shard.entry.documents for shard in dataset.shards])
    return np.searchsorted(ends, plan.documents[plan.offsets[:-1]], side="right")


def row(name: str, order: np.ndarray, shards: np.ndarray, depths: np.ndarray) -> list[str]:
    in_order = shards[order]
    changes = 1 + int((np.diff(in_order) != 0).sum())
    batches = [in_order[i : i + BATCH] for i in range(0, len(order) - BATCH + 1, BATCH)]
    pieces = [order[i : i + REACH] for i in range(0, max(len(order) - REACH, 0) + 1, REACH)]
    reach = np.mean([len(np.unique(piece // 1024)) for piece in pieces])
    correlation = np.corrcoef(depths[order][:-1], depths[order][1:])[0, 1]
    return [
        name,
        f"{spread(order):.3f}",
        f"{len(order) / changes:.2f}",
        f"{correlation:+.3f}",
        f"{np.mean([len(np.unique(batch)) for batch in batches]):.1f}",
        f"{reach / (-(-len(order) // 1024)):.1%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--plan", required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    import tokenmill
    from tokenmill.load.steps.order import Order, steps_of

    dataset = tokenmill.open(options.dataset)
    plan = tokenmill.open_plan(dataset, options.plan)
    shards, depths = shards_of(dataset, plan), np.diff(plan.offsets)
    print(measure.machine(), measure.versions(["tokenmill", "numpy"]))
    print(f"\n{len(plan):,} sequences in {len(dataset.shards)} shards\n")
    rows = []
    for name in ORDERS:
        order = Order(steps_of(plan), options.seed, name)(0, np.arange(len(plan)))
        rows.append(row(name, order, shards, depths))
    header = ["order", "spread", "run", "correlation", "sources", "reach"]
    print(measure.table(header, rows))


if __name__ == "__main__":
    main()
