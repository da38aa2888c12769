"""Files of metrics for Prometheus: OpenMetrics text that is replaced every few seconds.

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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.values import safe_text
from tokenmill.store.files import written_beside

LOGGER = logging.getLogger(__name__)
WRITE_SECONDS = 5.0
"""The least time between two writes, except for the last."""
MAX_LABELS = 100
MAX_LABEL_LENGTH = 100
OTHER = "other"
"""The label of everything beyond `MAX_LABELS`."""
UNITS = ("bytes", "seconds", "ratio")
PROMETHEUS_SUFFIX = ".prom"


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

    @property
    def samples(self) -> Mapping[str, float]:
        """The values by label; without labels, the only one has the label ""."""
        return self.values if isinstance(self.values, Mapping) else {"": self.values}


def text_of(
    families: Iterable[Family], prefix: str, labels: Mapping[str, str], *, prometheus: bool
) -> str:
    """Return families as text.

    Args:
        families: the metrics. Those without a value are left out.
        prefix: the beginning of all names.
        labels: labels of all values.
        prometheus: whether to write the format that node_exporter reads.
    """
    lines = [line for each in families for line in _lines(each, prefix, labels, prometheus)]
    return "\n".join([*lines, "# EOF\n"])


def _lines(
    family: Family, prefix: str, labels: Mapping[str, str], prometheus: bool
) -> Iterator[str]:
    samples = family.samples
    if not samples:
        return
    base = f"{prefix}_{family.name}"
    sample = f"{base}_total" if family.kind == "counter" else base
    described = sample if prometheus else base
    yield f"# HELP {described} {_escaped(family.help)}"
    yield f"# TYPE {described} {family.kind}"
    if (unit := base.rpartition("_")[2]) in UNITS:
        yield f"# UNIT {described} {unit}"
    for name, value in samples.items():
        own = {family.label: name} if family.label else {}
        pairs = (f'{key}="{_escaped(text)}"' for key, text in {**labels, **own}.items())
        yield f"{sample}{{{','.join(pairs)}}} {value}"


def bounded(values: Mapping[str, float]) -> dict[str, float]:
    """Return counts by at most `MAX_LABELS` labels of bounded length, and the sum of the others.

    The first ones keep their labels, because a counter must not move between two labels.
    """
    found: dict[str, float] = {}
    for number, (name, value) in enumerate(values.items()):
        label = name[:MAX_LABEL_LENGTH] if number < MAX_LABELS else OTHER
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
        share: tuple[str, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the path; nothing is written yet.

        Args:
            path: the file.
            prefix: the beginning of all names, such as "tokenmill_build".
            share: what this process is of several that have the same path, such as ("rank", 3).
                Its number becomes a part of the file's name.
            clock: returns the time in seconds.

        Raises:
            UserError: the path is a URL or a folder.
        """
        whole = local_path(path, "the metrics file")
        if whole.is_dir() or not whole.name:
            hint = "give the path of a file, such as corpus.prom"
            raise UserError("the metrics file is a folder", where=str(path), hint=hint)
        self._labels = {"run": whole.stem}
        if share is not None:
            self._labels[share[0]] = str(share[1])
            whole = whole.with_stem(f"{whole.stem}-{share[1]}")
        self.path = whole.absolute()
        self._prefix, self._clock = prefix, clock
        self._process, self._due, self._has_warned = os.getpid(), clock(), False

    def offer(self, families: Callable[[], Sequence[Family]]) -> None:
        """Write the families, unless the file is fresh enough."""
        if self._clock() >= self._due:
            self.write(families())

    def write(self, families: Sequence[Family]) -> None:
        """Replace the file. A forked process writes nothing."""
        if os.getpid() != self._process:
            return
        self._due = self._clock() + WRITE_SECONDS
        updated = Family(
            "updated_timestamp_seconds", "gauge", "When this file was written.", time.time()
        )
        is_prometheus = self.path.suffix == PROMETHEUS_SUFFIX
        text = text_of([*families, updated], self._prefix, self._labels, prometheus=is_prometheus)
        try:
            with written_beside(self.path, text.encode(), durable=False) as new:
                new.replace(self.path)
        except OSError as error:
            if not self._has_warned:
                why = error.strerror or error
                LOGGER.warning("cannot write metrics to %s: %s; going on without", self.path, why)
            self._has_warned = True
