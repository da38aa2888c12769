"""How many workers, and how much memory each may use: from the options and from the machine."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import psutil

from tokenmill.run.machine import cgroup
from tokenmill.run.recipe.options import ResourceOptions

DEFAULT_MEMORY_BYTES = 1_500_000_000
LEAST_MEMORY_BYTES = 128_000_000
"""Less would empty the caches of engines all the time and save nothing: libraries need more."""
MAX_BATCH_BYTES = 1 << 20  # what a core's own cache holds, with the ids that come of it
MIN_BATCH_BYTES = 1 << 18
PYTHON_BATCH_BYTES = 1 << 16
"""A Python tokenizer may take a second for it, and progress is told after each batch."""
MIN_GROWTH_BYTES = 256_000_000
"""Engines with their libraries and batches keep about 110 MB alive (measured, GPT-2)."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What a run uses."""

    num_workers: int
    workers_reason: str
    memory_bytes: int
    prefetch: int

    @property
    def worker_bytes(self) -> int:
        """Each worker's share; the main process, which holds the reference, takes one too."""
        return self.memory_bytes // (self.num_workers + 1)

    @property
    def growth_bytes(self) -> int:
        """By how much a worker may grow before a fresh one takes its place.

        Its share, but never so little that each of many workers would be replaced all the time.
        """
        return max(self.worker_bytes, MIN_GROWTH_BYTES)

    @property
    def batch_bytes(self) -> int:
        """Record bytes read, parsed and encoded at a time."""
        return min(max(self.worker_bytes // 96, MIN_BATCH_BYTES), MAX_BATCH_BYTES)

    @property
    def cache_bytes(self) -> int:
        """How far an engine's own cache may grow before it is dropped."""
        return self.worker_bytes // 2

    @property
    def table_bytes(self) -> int:
        """How far tables of words may grow before they are written: sorting copies them."""
        return self.worker_bytes // 4


def choose_resources(options: ResourceOptions) -> Resources:
    """Options where given, else 80 % of the usable physical cores and at most 1.5 GB."""
    usable, reason = _usable_cores()
    workers = options.workers or max(math.ceil(0.8 * usable), 1)
    if options.workers:
        reason = "--workers"
    usual = max(min(DEFAULT_MEMORY_BYTES, usable_memory()[0] // 2), LEAST_MEMORY_BYTES)
    memory = options.memory or usual
    return Resources(workers, reason, memory, options.prefetch)


def usable_memory() -> tuple[int, str]:
    """Bytes that may still be allocated, and what leaves no more: the machine or its cgroup."""
    available = int(psutil.virtual_memory().available)
    left = cgroup.memory_left()
    if left is None or left >= available:
        return available, "of the machine"
    return left, "of the cgroup"


def _usable_cores() -> tuple[float, str]:
    """Physical cores, or fewer where the affinity mask or a cgroup allows fewer."""
    limits = [(float(psutil.cpu_count(logical=False) or os.cpu_count() or 1), "physical cores")]
    if hasattr(os, "sched_getaffinity"):
        limits.append((float(len(os.sched_getaffinity(0))), "cores in the affinity mask"))
    if quota := cgroup.cores():
        limits.append((quota, "cores in the cgroup quota"))
    cores, name = min(limits)
    return cores, f"80% of {cores:g} {name}"
