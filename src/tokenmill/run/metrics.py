"""The metrics of a running build or count, for the file that `--metrics` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, TypeVar

from tokenmill.read.source import FetchProgress
from tokenmill.run.launch import AgentShare
from tokenmill.run.progress import Snapshot
from tokenmill.run.task import RunEvents
from tokenmill.store.open_metrics import Family, MetricsFile, bounded

P = TypeVar("P")


@contextmanager
def writing_metrics(
    events: RunEvents[P], path: str | None, noun: str, share: AgentShare | None = None
) -> Iterator[RunEvents[P]]:
    """Yield events that also keep a file of metrics: from the start to the end, and on an error.

    Args:
        events: the events.
        path: the file. None changes nothing.
        noun: the kind of run: "build" or "count".
        share: which of several agents this process is. Each has its own file.

    Raises:
        UserError: the path is a URL or a folder.
    """
    if path is None:
        yield events
        return
    metrics = _RunMetrics(path, noun, events, share)
    metrics.offer()
    try:
        yield replace(
            events,
            on_progress=metrics.progress,
            on_download=metrics.download,
            on_pack=metrics.advance,
        )
        metrics.finish()
    finally:
        metrics.file.write(metrics.families())


class _RunMetrics(Generic[P]):
    """Listens to a run, and keeps its file."""

    def __init__(
        self, path: str, noun: str, events: RunEvents[P], share: AgentShare | None
    ) -> None:
        agent = None if share is None else ("agent", share.index)
        self.file = MetricsFile(path, f"tokenmill_{noun}", agent)
        self._has_finished = False
        self._noun, self._events, self._is_agent = noun, events, share is not None
        self._snapshot: Snapshot | None = None
        self._stages: dict[str, float] = {}
        """The finished shares of stages before the first unit and after the last."""

    def offer(self) -> None:
        """Write the file if it is due."""
        self.file.offer(self.families)

    def progress(self, snapshot: Snapshot) -> None:
        self._events.on_progress(snapshot)
        self._snapshot = snapshot
        self.offer()

    def download(self, progress: FetchProgress) -> None:
        self._events.on_download(progress)
        self._stages["download"] = progress.done_bytes / max(progress.total_bytes, 1)
        self.offer()

    def advance(self, stage: str, done: int, total: int) -> None:
        """Note the progress of a stage after the last unit."""
        self._events.on_pack(stage, done, total)
        self._stages[stage] = done / max(total, 1)
        self.offer()

    def finish(self) -> None:
        """Note that the run has ended without an error, and so have all its stages."""
        self._has_finished, self._stages = True, dict.fromkeys(self._stages, 1)

    def families(self) -> list[Family]:
        """Return all metrics that are known so far."""
        has_finished, stages = int(self._has_finished), dict(self._stages)
        families = [
            Family("finished", "gauge", "1 once it has ended without an error.", has_finished),
            Family("stage_progress_ratio", "gauge", "Finished share of a stage.", stages, "stage"),
        ]
        if (shot := self._snapshot) is not None:
            families += _families_of(shot)
            if self._noun == "count":
                families.append(Family("words", "counter", "Words so far.", shot.tokens))
            else:
                written = shot.written_bytes
                families.append(Family("tokens", "counter", "Tokens so far.", shot.tokens))
                families.append(Family("written_bytes", "counter", "Bytes of tokens.", written))
            eta = shot.eta_seconds
            if eta is not None and not self._is_agent:  # an agent only knows its own speed
                families.append(Family("eta_seconds", "gauge", "Estimated time left.", eta))
        return families


def _families_of(shot: Snapshot) -> list[Family]:
    """Return the metrics of a snapshot that builds and counts share."""
    progress = shot.done_bytes / max(shot.total_bytes, 1)
    rejected = bounded(shot.rejected_by_reason)
    return [
        Family("documents", "counter", "Documents so far.", shot.documents),
        Family("rejected", "counter", "Records rejected.", rejected, "reason"),
        Family("read_bytes", "counter", "Decompressed bytes of records.", shot.read_bytes),
        Family("progress_ratio", "gauge", "Share of the input bytes that is done.", progress),
        Family("elapsed_seconds", "gauge", "Time since the start.", shot.elapsed_seconds),
        Family("workers", "gauge", "Running worker processes.", shot.num_workers),
        Family("cpu_cores", "gauge", "CPU cores in use.", shot.cpu_cores),
        Family("memory_bytes", "gauge", "Memory of all processes.", shot.memory_bytes),
        Family("peak_memory_bytes", "gauge", "The most memory so far.", shot.peak_bytes),
        Family("stage_seconds", "counter", "Time of all workers.", shot.stage_seconds, "stage"),
    ]
