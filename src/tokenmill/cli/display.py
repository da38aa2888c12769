"""A build as it is shown: a live line on a terminal, plain lines in a log, JSON for machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Union

import msgspec
import psutil

from tokenmill.cli.quantities import counted, duration_text, size_text
from tokenmill.cli.summary import plans_as_values, subsets_of, summary_lines
from tokenmill.read.places.place import FetchProgress
from tokenmill.read.sources import Source
from tokenmill.run.build import BuildEvents, BuildReport
from tokenmill.run.progress import Snapshot
from tokenmill.run.start.preparation import Preparation

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_SECONDS = 10.0
JSON_SECONDS = 5.0


Display = Union["JsonDisplay", "PlainDisplay"]


def events_for(display: Display) -> BuildEvents:
    """The callbacks that feed a display."""
    return BuildEvents(
        display.prepared, display.engine, display.progress, display.download, display.compare
    )


@contextmanager
def display_for(*, json: bool) -> Iterator[Display]:
    """The display that fits where the output goes."""
    if json:
        yield JsonDisplay()
    elif sys.stderr.isatty():
        with LiveDisplay() as display:
            yield display
    else:
        yield PlainDisplay()


class JsonDisplay:
    """One JSON object a line on standard output."""

    def __init__(self) -> None:
        self._shown = -JSON_SECONDS

    def download(self, progress: FetchProgress) -> None:
        """Event `download`, now and then, and at the end."""
        ended = progress.done_bytes == progress.total_bytes
        if ended or time.monotonic() - self._shown >= JSON_SECONDS:
            self._shown = time.monotonic()
            self._emit("download", asdict(progress))

    def compare(self, source: Source) -> None:
        self._emit("compare", {"input": source.name, "bytes": source.num_bytes})

    def prepared(self, prepared: Preparation) -> None:
        self._emit("prepared", dict(_facts(prepared)))

    def engine(self, engine: str, remark: str) -> None:
        self._emit("engine", {"engine": engine, "remark": remark})

    def progress(self, snapshot: Snapshot) -> None:
        values = {name: getattr(snapshot, name) for name in Snapshot.__slots__}
        self._emit("progress", {**values, "eta_seconds": snapshot.eta_seconds})

    def finish(self, report: BuildReport) -> None:
        run, manifest = report.run, report.dataset.manifest
        values = {
            "resumed": report.snapshot is None or report.snapshot.resumed_bytes > 0,
            "complete_before": report.snapshot is None,
            "reused": asdict(report.reused) if report.reused else None,
            "remarks": report.remarks,
            "out": str(report.dataset.folder),
            "dataset_id": manifest.dataset_id,
            "totals": msgspec.to_builtins(manifest.totals),
            "subsets": subsets_of(report),
            "shards": len(manifest.shards),
            "engine": run.engine,
            "audited_documents": run.audited_documents,
            "seconds": run.seconds,
            "peak_bytes": report.snapshot.peak_bytes if report.snapshot else run.peak_bytes,
            "plans": plans_as_values(report),
        }
        self._emit("finished", values)

    def _emit(self, event: str, values: dict[str, object]) -> None:
        print(msgspec.json.encode({"event": event, **values}).decode(), flush=True)


class PlainDisplay:
    """Lines on standard error, one at most every ten seconds."""

    def __init__(self) -> None:
        self._startup = 0.0
        self._shown = time.monotonic()

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def download(self, progress: FetchProgress) -> None:
        if self._is_due():
            share = progress.done_bytes / max(progress.total_bytes, 1)
            self.say(f"{share:>11.1%}  {_download_line(progress)}")

    def compare(self, source: Source) -> None:
        size = size_text(source.num_bytes)
        self.say(f"{'comparing':>12}  {source.name}: modified since the last build, {size}")

    def prepared(self, prepared: Preparation) -> None:
        """One line per fact."""
        self._startup = time.time() - psutil.Process().create_time()
        for name, value in _facts(prepared):
            self.say(f"{name:>12}  {value}")

    def engine(self, engine: str, remark: str) -> None:
        self.say(f"{'engine':>12}  {engine}{' ' + remark if remark else ''}")

    def progress(self, snapshot: Snapshot) -> None:
        if self._is_due():
            share = snapshot.done_bytes / max(snapshot.total_bytes, 1)
            self.say(f"{share:>11.1%}  {_progress_line(snapshot)}")

    def _is_due(self) -> bool:
        due = time.monotonic() - self._shown >= PLAIN_SECONDS
        self._shown = time.monotonic() if due else self._shown
        return due

    def finish(self, report: BuildReport) -> None:
        """The summary, on standard output."""
        print("\n".join(summary_lines(report, self._startup)), flush=True)


class LiveDisplay(PlainDisplay):
    """A progress bar that is drawn in place."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> LiveDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def download(self, progress: FetchProgress) -> None:
        """A bar of its own moves."""
        self._draw(progress.done_bytes, progress.total_bytes, _download_line(progress))

    def prepared(self, prepared: Preparation) -> None:
        """The facts take the bar's place."""
        self._close()
        super().prepared(prepared)

    def progress(self, snapshot: Snapshot) -> None:
        self._draw(snapshot.done_bytes, snapshot.total_bytes, _progress_line(snapshot))

    def _draw(self, done: int, total: int, line: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            columns = (BarColumn(24), TaskProgressColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=max(total, 1))
            self._bar.start()
        if self._task is not None:
            self._bar.update(self._task, completed=done, description=line)

    def finish(self, report: BuildReport) -> None:
        """The summary takes the bar's place."""
        self._close()
        super().finish(report)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _facts(prepared: Preparation) -> Iterator[tuple[str, str]]:
    resources, boundary = prepared.resources, prepared.boundary
    yield "inputs", f"{counted(len(prepared.sources), 'file')}, {size_text(prepared.num_bytes)}"
    file = prepared.file
    yield "tokenizer", f"{file.origin} ({file.kind}, {prepared.reference.largest_id + 1:,} ids)"
    yield "ids", prepared.dtype_name
    yield "end", f"id {boundary.eos_id}, from {boundary.eos_reason}"
    yield "beginning", f"ids {list(boundary.prefix)}" if boundary.prefix else "nothing"
    yield "padding", "not named" if boundary.pad_id is None else f"id {boundary.pad_id}"
    yield "special", f"strings in text are read as {prepared.policies.encode.special_tokens}"
    yield "workers", f"{resources.num_workers} ({resources.workers_reason})"
    yield "memory", size_text(resources.memory_bytes)
    for name, why in prepared.candidates.remarks.items():
        yield "not used", f"{name}: {why}"


def _download_line(progress: FetchProgress) -> str:
    return (
        f"downloaded {size_text(progress.done_bytes)} of {size_text(progress.total_bytes)}, "
        f"{progress.done_files:,} of {counted(progress.num_files, 'file')}"
    )


def _progress_line(snapshot: Snapshot) -> str:
    seconds = max(snapshot.elapsed_seconds, 1e-9)
    eta = snapshot.eta_seconds
    return ", ".join(
        [
            f"eta {duration_text(eta)}" if eta is not None else "eta -",
            f"{snapshot.read_bytes / 1e6 / seconds:,.0f} MB/s",
            f"{snapshot.tokens / 1e6 / seconds:,.1f} M tokens/s",
            counted(snapshot.documents, "document"),
            f"{snapshot.rejected:,} rejected",
            f"{snapshot.cpu_cores:.1f} cores",
            f"{snapshot.written_bytes / 1e6 / seconds:,.0f} MB/s to disk",
            size_text(snapshot.memory_bytes),
        ]
    )
