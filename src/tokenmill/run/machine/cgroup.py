"""The memory and cores that the control groups (cgroups) of this process allow.

Containers, batch systems and systemd limit a process with nested groups, and the tightest limit
applies. Both versions of the cgroup interface are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def memory_left() -> int | None:
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


def cores() -> float | None:
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
