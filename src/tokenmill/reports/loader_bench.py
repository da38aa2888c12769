"""Whether a loader keeps up with a trainer, from this disk or bucket.

A training step is a sleep here, because a GPU leaves the processor free. An arrangement of workers
and batches ahead is measured without steps, until nothing is left that was prepared before, and
then with steps. Each takes other steps of the epoch, and files leave the page cache first, so that
tokens come from the disk or the bucket.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tokenmill.core.records import Advance
from tokenmill.load.batches import Batches
from tokenmill.load.columns import Batch
from tokenmill.load.opening import as_tensors, open_batches
from tokenmill.run.machine import usable_cores
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import chosen_plan
from tokenmill.store.temporary import dataset_at

ENOUGH_SHARE = 0.01
"""A loader keeps up if at most this share of the time is waiting."""
NUM_STEPS = 100
"""Steps to measure in each arrangement."""
NUM_DRAINED = 40
"""Batches to take without steps, twice: no arrangement prepares or fetches more ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRow:
    """An arrangement with its figures."""

    workers: int
    """Worker processes of a DataLoader. With 0, a thread of the trainer's process makes batches."""
    prefetch: int
    """Batches that the thread, or each worker, prepares ahead."""
    prefetch_steps: int
    """Steps whose tokens are fetched ahead from a bucket; 0 for a local folder."""
    steps: int = 0
    first_seconds: float = 0.0
    """Wait for the first batch, which is not part of the other figures."""
    fastest_seconds: float = 0.0
    """Time of a batch if there is no step between batches."""
    wait_seconds: float = 0.0
    """Mean wait of a step."""
    wait_share: float = 0.0
    """Share of the time that is waiting."""


@dataclass(frozen=True, slots=True)
class LoaderBench:
    """The measured arrangements, the simplest first. The last one keeps up, or none does."""

    rows: list[LoaderRow]
    best: LoaderRow
    """The arrangement that waits least."""
    keeps_up: bool


def bench_loader(
    dataset: str,
    plan: str | None,
    *,
    step_seconds: float,
    batch_size: int,
    seconds: float,
    advance: Advance = lambda stage, done, total: None,
) -> LoaderBench:
    """Measure arrangements of a loader in this time, the simplest first, until one keeps up.

    Raises:
        UserError: the dataset, the plan or PyTorch is missing.
        VerificationError: the dataset is damaged.
        StorageError: the bucket fails.
    """
    rows: list[LoaderRow] = []
    with dataset_at(dataset) as opened:
        found = chosen_plan(opened, plan)
        options: dict[str, Any] = {"batch_size": batch_size, "epochs": None, "world_size": 1}
        end = time.monotonic() + seconds
        planned = arrangements(usable_cores(), is_remote=opened.origin is not None)
        for number, row in enumerate(planned):
            advance(f"workers: {row.workers}, ahead: {row.prefetch}", number, len(planned))
            batches = open_batches(_ahead(opened, row.prefetch_steps), found, **options)
            batches.load_state_dict(batches.state_dict(number * (NUM_STEPS + 4 * NUM_DRAINED)))
            share = (end - time.monotonic()) / (len(planned) - number)
            rows.append(_measured(row, batches, step_seconds, share))
            if rows[-1].wait_share <= ENOUGH_SHARE:
                break
    best = min(rows, key=lambda row: row.wait_share)
    return LoaderBench(rows, best, best.wait_share <= ENOUGH_SHARE)


def arrangements(num_cores: int, *, is_remote: bool) -> list[LoaderRow]:
    """Return the arrangements to measure, beginning with the defaults."""
    ways = [(0, 2), (0, 8), *((1 << power, 2) for power in range(num_cores.bit_length()))]
    return [
        LoaderRow(workers=workers, prefetch=ahead, prefetch_steps=steps)
        for workers, ahead in ways
        for steps in ((8, 32) if is_remote else (0,))
    ]


def _ahead(dataset: Dataset, prefetch_steps: int) -> Dataset:
    """Return a dataset that fetches so many steps ahead, or whose pages left the page cache."""
    if dataset.origin is not None:
        return Dataset(dataset.folder, replace(dataset.origin, prefetch_steps=prefetch_steps))
    for shard in dataset.shards if hasattr(os, "posix_fadvise") else ():
        with open(shard.path("bin"), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return dataset


def _measured(row: LoaderRow, batches: Batches, step_seconds: float, seconds: float) -> LoaderRow:
    """Return a row with its figures, from about this many seconds."""
    end = time.monotonic() + seconds
    loader = as_tensors(batches, row.prefetch, None)
    options: dict[str, Any] = {"prefetch_factor": row.prefetch} if row.workers else {}
    iterator = iter(loader.dataloader(row.workers, **options))
    _, first_seconds = _take(iterator, 1, 0.0, end)
    _take(iterator, NUM_DRAINED, 0.0, end - seconds / 2)
    drained, drain_seconds = _take(iterator, NUM_DRAINED, 0.0, end - seconds / 2)
    before = loader.stats()["wait_seconds"]
    steps, whole_seconds = _take(iterator, NUM_STEPS, step_seconds, end)
    wait_seconds = loader.stats()["wait_seconds"] - before
    return replace(
        row,
        steps=steps,
        first_seconds=first_seconds,
        fastest_seconds=drain_seconds / drained,
        wait_seconds=wait_seconds / steps,
        wait_share=wait_seconds / whole_seconds,
    )


def _take(
    batches: Iterator[Batch], count: int, step_seconds: float, end: float
) -> tuple[int, float]:
    """Take one to `count` batches, each after a step, until `end`; return how many, and seconds."""
    begun, taken = time.monotonic(), 0
    while taken < count and (taken == 0 or time.monotonic() < end):
        time.sleep(min(step_seconds, max(end - time.monotonic(), 0)))
        next(batches)
        taken += 1
    return taken, time.monotonic() - begun
