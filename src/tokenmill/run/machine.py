"""The cores and memory of this machine, and how a run uses them.

Containers, batch systems and systemd limit a process with nested control groups (cgroups), and the
tightest limit applies. Both versions of the cgroup interface are read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from tokenmill.run.recipe.options import ResourceOptions

ROOT = Path("/")
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
    left = _memory_left_in_cgroups()
    if left is None or left >= available:
        return available, "of the machine"
    return left, "of the cgroup"


def usable_cores() -> int:
    """Return the number of logical cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _usable_cores() -> tuple[float, str]:
    """Return the physical cores, or fewer if the affinity mask or a cgroup allows fewer."""
    limits = [(float(psutil.cpu_count(logical=False) or os.cpu_count() or 1), "physical cores")]
    if hasattr(os, "sched_getaffinity"):
        limits.append((float(usable_cores()), "cores in the affinity mask"))
    if quota := _cores_of_cgroups():
        limits.append((quota, "cores in the cgroup quota"))
    cores, name = min(limits)
    return cores, f"80% of {cores:g} {name}"


def _memory_left_in_cgroups() -> int | None:
    """Return the bytes that can still be allocated before a group kills. None if unlimited."""
    left = [
        _memory_left(folder, "memory.max", "memory.current", "")
        for folder in _folders("", "sys/fs/cgroup")
    ]
    left += [
        _memory_left(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        for folder in _folders("memory", "sys/fs/cgroup/memory")
    ]
    return min((found for found in left if found is not None), default=None)


def _cores_of_cgroups() -> float | None:
    """Return the cores that the processes of a group may use together. None without a quota."""
    quotas = [_quota(folder) for folder in _folders("", "sys/fs/cgroup")]
    return min((found for found in quotas if found is not None), default=None)


def _folders(controller: str, mount: str) -> Iterator[Path]:
    """Yield the folders of this process's group and of all groups around it.

    In a container the path may be the host's, with only its end mounted, or nothing.
    """
    root = ROOT / mount
    own = Path()
    for line in _lines(ROOT / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if path and controller in controllers.split(","):
            own = Path(path.lstrip("/"))
    for part in (own, *own.parents):
        if ".." not in part.parts and (root / part).is_dir():
            yield root / part


def _memory_left(folder: Path, limit: str, used: str, prefix: str) -> int | None:
    try:
        left = int((folder / limit).read_text()) - int((folder / used).read_text())
    except (OSError, ValueError):  # no limit: no file, or "max"
        return None
    # Cached pages of files count as used, but the kernel frees them before it kills.
    cache = {f"{prefix}inactive_file", f"{prefix}active_file"}
    pairs = (line.partition(" ") for line in _lines(folder / "memory.stat"))
    return max(left + sum(int(n) for name, _, n in pairs if name in cache and n.isdecimal()), 0)


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, or [] if it is absent. Names of groups may not be UTF-8."""
    try:
        return path.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []


def _quota(folder: Path) -> float | None:
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
