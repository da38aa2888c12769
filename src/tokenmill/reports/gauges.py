"""The figures in a file of OpenMetrics text that a loader or a build writes, read with care."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

MAX_FILE_BYTES = 1 << 20
MAX_GAUGES = 200
_LINE = re.compile(r"tokenmill_(?P<name>\w+)(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+.\w]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Gauge(NamedTuple):
    """A figure: `tokenmill_wait_seconds{rank="0"} 12.5` is ("wait seconds", "rank 0", 12.5)."""

    name: str
    labels: str
    value: float


def read_gauges(path: Path) -> list[Gauge]:
    """Return the figures whose names begin with `tokenmill_`. Lines that mean nothing are skipped.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        text = file.read(MAX_FILE_BYTES).decode(errors="replace")
    gauges: list[Gauge] = []
    for match in filter(None, map(_LINE.match, text.splitlines())):
        labels = ", ".join(map(" ".join, _LABEL.findall(match["labels"] or "")))
        try:
            gauges.append(Gauge(match["name"].replace("_", " "), labels, float(match["value"])))
        except ValueError:
            continue
    return gauges[:MAX_GAUGES]
