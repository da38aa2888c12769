"""Choose the number of workers and their memory from the options and the machine."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import psutil

from tokenmill.run.machine import cgroup
from tokenmill.run.recipe.options import ResourceOptions

DEFAULT_MEMORY_BYTES = 1_500_000_000
LEAST_MEMORY_BYTES = 128_000_000
"""With less, engines would keep emptying their caches, and the libraries alone need more."""
MAX_BATCH_BYTES = 1 << 20  # fits a core's own cache, together with its token ids
MIN_BATCH_BYTES = 1 << 18
PYTHON_BATCH_BYTES = 1 << 16
"""Batches of Python tokenizers, which may need a second for one. Each batch reports progress."""
MIN_GROWTH_BYTES = 256_000_000
"""An engine with its libraries and batches keeps about 110 MB alive (measured with GPT-2)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """The workers and memory of a run."""

    num_workers: int
    workers_reason: str
    memory_bytes: int
    prefetch: int

    @property
    def worker_bytes(self) -> int:
        """The memory of each worker. The main process gets a share too, for the reference."""
        return self.memory_bytes // (self.num_workers + 1)

    @property
    def growth_bytes(self) -> int:
        """By how much a worker may grow before a fresh one replaces it.

        At least `MIN_GROWTH_BYTES`, because many workers would otherwise be replaced constantly.
        """
        return max(self.worker_bytes, MIN_GROWTH_BYTES)

    @property
    def batch_bytes(self) -> int:
        """The record bytes to read, parse and encode at a time."""
        return min(max(self.worker_bytes // 96, MIN_BATCH_BYTES), MAX_BATCH_BYTES)

    @property
    def cache_bytes(self) -> int:
        """The size at which an engine's cache is emptied."""
        return self.worker_bytes // 2

    @property
    def table_bytes(self) -> int:
        """The size at which tables of words are written to disk. Sorting copies them."""
        return self.worker_bytes // 4


def choose_resources(options: ResourceOptions) -> Resources:
    """Choose resources. By default 80% of the usable physical cores, and at most 1.5 GB."""
    usable, reason = _usable_cores()
    workers = options.workers or max(math.ceil(0.8 * usable), 1)
    if options.workers:
        reason = "--workers"
    usual = max(min(DEFAULT_MEMORY_BYTES, usable_memory()[0] // 2), LEAST_MEMORY_BYTES)
    memory = options.memory or usual
    return Resources(workers, reason, memory, options.prefetch)


def usable_memory() -> tuple[int, str]:
    """Return the bytes that can still be allocated, and what limits them."""
    available = int(psutil.virtual_memory().available)
    left = cgroup.memory_left()
    if left is None or left >= available:
        return available, "of the machine"
    return left, "of the cgroup"


def _usable_cores() -> tuple[float, str]:
    """Return the physical cores, or fewer if the affinity mask or a cgroup allows fewer."""
    limits = [(float(psutil.cpu_count(logical=False) or os.cpu_count() or 1), "physical cores")]
    if hasattr(os, "sched_getaffinity"):
        limits.append((float(len(os.sched_getaffinity(0))), "cores in the affinity mask"))
    if quota := cgroup.cores():
        limits.append((quota, "cores in the cgroup quota"))
    cores, name = min(limits)
    return cores, f"80% of {cores:g} {name}"
