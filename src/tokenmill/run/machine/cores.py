"""How many cores there are for threads and processes."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores that this process may run on, hyper-threads counted."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
