"""The metrics of a running build or count, for the file that `--metrics` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tokenmill.read.source import FetchProgress
from tokenmill.run.launch import AgentShare
from tokenmill.run.progress import Snapshot
from tokenmill.run.task import RunEvents
from tokenmill.store.open_metrics import Family, MetricsFile

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
    agent = None if share is None else ("agent", share.index)
    known = _Known(noun, is_agent=share is not None)
    file = MetricsFile(path, f"tokenmill_{noun}", known.families, agent)

    def on_progress(snapshot: Snapshot) -> None:
        events.on_progress(snapshot)
        known.snapshot = snapshot
        file.offer()

    def on_download(progress: FetchProgress) -> None:
        events.on_download(progress)
        known.stages["download"] = progress.done_bytes / max(progress.total_bytes, 1)
        file.offer()

    def on_pack(stage: str, done: int, total: int) -> None:
        events.on_pack(stage, done, total)
        known.stages[stage] = done / max(total, 1)
        file.offer()

    file.offer()
    try:
        yield replace(events, on_progress=on_progress, on_download=on_download, on_pack=on_pack)
        known.has_finished, known.stages = True, dict.fromkeys(known.stages, 1)
    finally:
        file.write()


@dataclass(slots=True)
class _Known:
    """What is known of a run."""

    noun: str
    is_agent: bool
    has_finished: bool = False
    snapshot: Snapshot | None = None
    stages: dict[str, float] = field(default_factory=dict)
    """The finished shares of stages before the first unit and after the last."""

    def families(self) -> list[Family]:
        """Return all metrics that are known so far."""
        has_finished, stages = int(self.has_finished), dict(self.stages)
        families = [
            Family("finished", "gauge", "1 once it has ended without an error.", has_finished),
            Family("stage_progress_ratio", "gauge", "Finished share of a stage.", stages, "stage"),
        ]
        if (shot := self.snapshot) is None:
            return families
        families += _families_of(shot)
        if self.noun == "count":
            families.append(Family("words", "counter", "Words so far.", shot.tokens))
        else:
            written = shot.written_bytes
            families.append(Family("tokens", "counter", "Tokens so far.", shot.tokens))
            families.append(Family("written_bytes", "counter", "Bytes of tokens.", written))
        eta = shot.eta_seconds
        if eta is not None and not self.is_agent:  # an agent only knows its own speed
            families.append(Family("eta_seconds", "gauge", "Estimated time left.", eta))
        return families


def _families_of(shot: Snapshot) -> list[Family]:
    """Return the metrics of a snapshot that builds and counts share."""
    progress = shot.done_bytes / max(shot.total_bytes, 1)
    return [
        Family("documents", "counter", "Documents so far.", shot.documents),
        Family("rejected", "counter", "Records rejected.", shot.rejected_by_reason, "reason"),
        Family("read_bytes", "counter", "Decompressed bytes of records.", shot.read_bytes),
        Family("progress_ratio", "gauge", "Share of the input bytes that is done.", progress),
        Family("elapsed_seconds", "gauge", "Time since the start.", shot.elapsed_seconds),
        Family("workers", "gauge", "Running worker processes.", shot.num_workers),
        Family("cpu_cores", "gauge", "CPU cores in use.", shot.cpu_cores),
        Family("memory_bytes", "gauge", "Memory of all processes.", shot.memory_bytes),
        Family("peak_memory_bytes", "gauge", "The most memory so far.", shot.peak_bytes),
        Family("stage_seconds", "counter", "Time of all workers.", shot.stage_seconds, "stage"),
    ]
