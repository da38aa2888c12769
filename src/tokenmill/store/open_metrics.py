"""Files of metrics for Prometheus: OpenMetrics text that is replaced every few seconds, and read.

# HELP tokenmill_build_read_bytes Text that was read.
# TYPE tokenmill_build_read_bytes counter
# UNIT tokenmill_build_read_bytes bytes
tokenmill_build_read_bytes_total{run="corpus"} 1048576
# EOF

node_exporter reads files named *.prom, in Prometheus' older format. There, the lines about a
counter must have its name with `_total`, which OpenMetrics forbids.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.paths import local_path
from tokenmill.core.values import safe_text
from tokenmill.store.files import storage_errors, written_beside

LOGGER = logging.getLogger(__name__)
WRITE_SECONDS = 5.0
"""The least time between two writes, except for the last."""
BEGINNING = b"# HELP tokenmill_"
"""How every such file begins."""
MAX_LABELS = 100
MAX_LABEL_LENGTH = 100
OTHER = "other"
"""The label of everything beyond `MAX_LABELS`."""
UNITS = ("bytes", "seconds", "ratio")
PROMETHEUS_SUFFIX = ".prom"
MAX_FILE_BYTES = 1 << 20
MAX_GAUGES = 200
_LINE = re.compile(r"tokenmill_(?P<name>\w+)(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+.\w]+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values."""

    name: str
    """Its name without `_total`, such as "read_bytes". The unit is its end, if in `UNITS`."""
    kind: Literal["counter", "gauge"]
    help: str
    values: float | Mapping[str, float]
    """Its value, or its values by `label`."""
    label: str = ""

    def samples(self) -> dict[str, float]:
        """The values by at most `MAX_LABELS` labels of bounded length; one value has the label "".

        The first ones keep their labels, because a counter must not move between two labels. The
        others of a counter are added up, and those of a gauge are left out.
        """
        if not isinstance(self.values, Mapping):
            return {"": self.values}
        found: dict[str, float] = {}
        for number, (name, value) in enumerate(self.values.items()):
            label = name[:MAX_LABEL_LENGTH] if number < MAX_LABELS else OTHER
            if self.kind == "counter" or (number < MAX_LABELS and label not in found):
                found[label] = found.get(label, 0) + value
        return found


def _escaped(text: str) -> str:
    r"""Return a text as it is written in quotes; control characters become visible escapes."""
    return safe_text(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class MetricsFile:
    """A file that is replaced as a whole. An error of the file system is a warning, given once."""

    def __init__(
        self,
        path: str | Path,
        prefix: str,
        families: Callable[[], Sequence[Family]],
        share: tuple[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the path; nothing is written yet.

        Args:
            path: the file.
            prefix: the beginning of all names, such as "tokenmill_build".
            families: returns the metrics as they are at the moment.
            share: what this process is of several that have the same path, such as ("rank", 3).
                Its number becomes a part of the file's name.
            clock: returns the time in seconds.

        Raises:
            UserError: the path is a URL, or no name of a file.
            OutputConflictError: it is another file.
        """
        whole = local_path(path, "the metrics file")
        if whole.is_dir() or not whole.name:
            hint = "give the path of a file, such as corpus.prom"
            raise UserError("the metrics file needs a name", where=str(path), hint=hint)
        self._labels = {"run": whole.stem}
        if share is not None:
            self._labels[share[0]] = str(share[1])
            whole = whole.with_stem(f"{whole.stem}-{share[1]}")
        self.path = Path(os.path.realpath(whole))
        self._require_ours()
        self._prefix, self._families, self._clock = prefix, families, clock
        self._process, self._due, self._has_warned = os.getpid(), clock(), False

    def _require_ours(self) -> None:
        """Refuse a file that does not begin like one of these, because it would be replaced."""
        if not self.path.exists():
            return
        if self.path.is_file():
            with storage_errors("read", self.path), self.path.open("rb") as file:
                if file.read(len(BEGINNING)) in (b"", BEGINNING):
                    return
        raise OutputConflictError(
            "the metrics file already exists",
            where=str(self.path),
            why="it holds no metrics of tokenmill, and would be replaced",
            hint="give the path of a new file, such as corpus.prom",
        )

    def offer(self) -> None:
        """Write the file, unless it is fresh enough."""
        if self._clock() >= self._due:
            self.write()

    def write(self) -> None:
        """Replace the file. A forked process writes nothing."""
        if os.getpid() != self._process:
            return
        self._due = self._clock() + WRITE_SECONDS
        try:
            with written_beside(self.path, self._text().encode(), durable=False) as new:
                new.replace(self.path)
        except OSError as error:
            if not self._has_warned:
                why = error.strerror or error
                LOGGER.warning("cannot write metrics to %s: %s; going on without", self.path, why)
            self._has_warned = True

    def _text(self) -> str:
        """Return all metrics that have a value, and when they were written."""
        about, now = "When this file was written.", time.time()
        updated = Family("updated_timestamp_seconds", "gauge", about, now)
        lines = [line for each in (*self._families(), updated) for line in self._lines(each)]
        return "\n".join([*lines, "# EOF\n"])

    def _lines(self, family: Family) -> Iterator[str]:
        if not (samples := family.samples()):
            return
        base = f"{self._prefix}_{family.name}"
        sample = f"{base}_total" if family.kind == "counter" else base
        described = sample if self.path.suffix == PROMETHEUS_SUFFIX else base
        yield f"# HELP {described} {_escaped(family.help)}"
        yield f"# TYPE {described} {family.kind}"
        if (unit := base.rpartition("_")[2]) in UNITS:
            yield f"# UNIT {described} {unit}"
        for name, value in samples.items():
            own = {family.label: name} if family.label else {}
            pairs = (f'{key}="{_escaped(text)}"' for key, text in (self._labels | own).items())
            yield f"{sample}{{{','.join(pairs)}}} {value}"


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
