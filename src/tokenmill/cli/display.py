"""Displays of a run: a live line on a terminal, plain lines in a log, or JSON for machines."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Generic, TypeVar, Union

import msgspec
import psutil

from tokenmill.cli.quantities import counted, duration_text, size_text
from tokenmill.cli.shown import Shown
from tokenmill.cli.tables import fact_lines
from tokenmill.cli.terminal import use_colour
from tokenmill.core.errors import Interrupted
from tokenmill.read.source import FetchProgress, Source
from tokenmill.run.commit.receipts import num_finished_units
from tokenmill.run.events import RunEvents
from tokenmill.run.progress import Snapshot

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PLAIN_SECONDS = 10.0
JSON_SECONDS = 5.0
WIDE = 100
"""The longer bar is drawn from this terminal width on."""


P = TypeVar("P")
R = TypeVar("R")
Display = Union["JsonDisplay[P, R]", "PlainDisplay[P, R]"]


def events_for(display: Display[P, R]) -> RunEvents[P]:
    """The callbacks that feed a display."""
    return RunEvents(
        display.prepared,
        display.engine,
        display.progress,
        display.download,
        display.compare,
        display.advance,
    )


@contextmanager
def display_for(shown: Shown[P, R], *, json: bool) -> Iterator[Display[P, R]]:
    """Yield the display for the output: JSON, a terminal, or a log."""
    if json:
        yield JsonDisplay(shown)
    elif sys.stderr.isatty():
        with LiveDisplay(shown) as display:
            yield display
    else:
        yield PlainDisplay(shown)


@contextmanager
def naming_kept_units(out: str) -> Iterator[None]:
    """Add to an Interrupted error how many finished units the next run can reuse."""
    try:
        yield
    except Interrupted as error:
        if kept := num_finished_units(out):
            error.add_note(f"{kept:,} finished unit{'s are' if kept > 1 else ' is'} kept")
        raise


class JsonDisplay(Generic[P, R]):
    """One JSON object a line on standard output."""

    def __init__(self, shown: Shown[P, R]) -> None:
        self._shown = shown
        self._last = -JSON_SECONDS

    def download(self, progress: FetchProgress) -> None:
        """Emit the event `download` every few seconds and at the end."""
        ended = progress.done_bytes == progress.total_bytes
        if ended or time.monotonic() - self._last >= JSON_SECONDS:
            self._last = time.monotonic()
            self._emit("download", asdict(progress))

    def compare(self, source: Source) -> None:
        self._emit("compare", {"input": source.name, "bytes": source.num_bytes})

    def prepared(self, prepared: P) -> None:
        self._emit("prepared", dict(self._shown.facts(prepared)))

    def engine(self, engine: str, remark: str) -> None:
        self._emit("engine", {"engine": engine, "remark": remark})

    def progress(self, snapshot: Snapshot) -> None:
        values = {name: getattr(snapshot, name) for name in Snapshot.__slots__}
        self._emit("progress", {**values, "eta_seconds": snapshot.eta_seconds})

    def advance(self, stage: str, done: int, total: int) -> None:
        """Emit an event named after the stage every few seconds."""
        if time.monotonic() - self._last >= JSON_SECONDS:
            self._last = time.monotonic()
            self._emit(stage, {"done": done, "total": total})

    def compiling(self) -> None:
        """Emit nothing: this takes a few seconds, once."""

    def finish(self, report: R) -> None:
        self._emit("finished", self._shown.values(report))

    def leave(self, out: str) -> None:
        self._emit("left", {"out": out})

    def _emit(self, event: str, values: dict[str, object]) -> None:
        print(msgspec.json.encode({"event": event, **values}).decode(), flush=True)


class PlainDisplay(Generic[P, R]):
    """Lines on standard error, one at most every ten seconds."""

    def __init__(self, shown: Shown[P, R]) -> None:
        self._shown = shown
        self._startup = 0.0
        self._last = time.monotonic()

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def download(self, progress: FetchProgress) -> None:
        if self._is_due():
            share = progress.done_bytes / max(progress.total_bytes, 1)
            self.say(f"{share:>11.1%}  {_download_line(progress)}")

    def compare(self, source: Source) -> None:
        size = size_text(source.num_bytes)
        self.say(f"{'comparing':>12}  {source.name}: modified since the last build, {size}")

    def prepared(self, prepared: P) -> None:
        """One line per fact."""
        self._startup = time.time() - psutil.Process().create_time()
        self._say_facts(self._shown.facts(prepared))

    def engine(self, engine: str, remark: str) -> None:
        self._say_facts([("engine", f"{engine}{' ' + remark if remark else ''}")])

    def _say_facts(self, facts: Iterable[tuple[str, str]]) -> None:
        for line in fact_lines(facts, 12, colour=use_colour(sys.stderr)):
            self.say(line)

    def progress(self, snapshot: Snapshot) -> None:
        if self._is_due():
            share = snapshot.done_bytes / max(snapshot.total_bytes, 1)
            self.say(f"{share:>11.1%}  {_progress_line(snapshot, self._shown)}")

    def advance(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage after the last unit."""
        if self._is_due():
            self.say(f"{done / max(total, 1):>11.1%}  {stage}")

    def compiling(self) -> None:
        """Say that code is compiled, which takes a few seconds."""
        self.say(f"{'compiling':>12}  for this machine; later runs will not have to")

    def _is_due(self) -> bool:
        due = time.monotonic() - self._last >= PLAIN_SECONDS
        self._last = time.monotonic() if due else self._last
        return due

    def finish(self, report: R) -> None:
        """Print the summary on standard output."""
        print("\n".join(self._shown.lines(report, self._startup)), flush=True)

    def leave(self, out: str) -> None:
        """Say that this agent has nothing left to do."""
        self.say(f"{'left':>12}  other agents finish the rest: tokenmill status {out}")


class LiveDisplay(PlainDisplay[P, R]):
    """A progress bar that is drawn in place."""

    def __init__(self, shown: Shown[P, R]) -> None:
        super().__init__(shown)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._bar_width = 0
        self._stage = ""

    def __enter__(self) -> LiveDisplay[P, R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def download(self, progress: FetchProgress) -> None:
        """Move the bar of the download."""
        self._draw(progress.done_bytes, progress.total_bytes, _download_line(progress))

    def prepared(self, prepared: P) -> None:
        """Remove the bar and print the facts."""
        self._close()
        super().prepared(prepared)

    def progress(self, snapshot: Snapshot) -> None:
        self._draw(snapshot.done_bytes, snapshot.total_bytes, _progress_line(snapshot, self._shown))

    def advance(self, stage: str, done: int, total: int) -> None:
        """Move the bar of the stage; each stage has its own."""
        if stage != self._stage:
            self._close()
            self._stage = stage
        self._draw(done, total, stage)

    def compiling(self) -> None:
        """Remove the bar and print the line."""
        self._close()
        super().compiling()

    def _draw(self, done: int, total: int, line: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

            console = Console(stderr=True)
            self._bar_width = 24 if console.width >= WIDE else 10
            columns = (
                BarColumn(self._bar_width),
                TaskProgressColumn(),
                TextColumn("{task.description}", markup=False),
            )
            self._bar = Progress(*columns, console=console, transient=True)
            self._task = self._bar.add_task("", total=max(total, 1))
            self._bar.start()
        if self._task is not None:
            room = self._bar.console.width - self._bar_width - len(" 100% ")
            self._bar.update(self._task, completed=done, description=_fitted(line, room))

    def finish(self, report: R) -> None:
        """Remove the bar and print the summary."""
        self._close()
        super().finish(report)

    def leave(self, out: str) -> None:
        """Remove the bar and say that nothing is left to do."""
        self._close()
        super().leave(out)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _fitted(line: str, room: int) -> str:
    """The first parts of a line that fit into `room` characters; parts are never cut."""
    fitted = ""
    for part in re.split(r"(?<=[,;]) ", line):
        longer = f"{fitted} {part}".lstrip()
        if fitted and len(longer.rstrip(",;")) > room:
            break
        fitted = longer
    return fitted.rstrip(",;")


def _download_line(progress: FetchProgress) -> str:
    return (
        f"downloaded {size_text(progress.done_bytes)} of {size_text(progress.total_bytes)}, "
        f"{progress.done_files:,} of {counted(progress.num_files, 'file')}"
    )


def _progress_line(snapshot: Snapshot, shown: Shown[P, R]) -> str:
    if snapshot.num_awaited:
        items = counted(snapshot.num_awaited, "item")
        return f"waiting for {items} of other agents; takes over from silent ones after 60 to 80 s"
    seconds = max(snapshot.elapsed_seconds, 1e-9)
    eta = snapshot.eta_seconds
    to_disk = f"{snapshot.written_bytes / 1e6 / seconds:,.0f} MB/s to disk"
    return ", ".join(
        [
            f"eta {duration_text(eta)}" if eta is not None else "eta -",
            f"{snapshot.read_bytes / 1e6 / seconds:,.0f} MB/s",
            f"{snapshot.tokens / 1e6 / seconds:,.1f} M {shown.counted}/s",
            counted(snapshot.documents, "document"),
            f"{snapshot.rejected:,} rejected",
            f"{snapshot.cpu_cores:.1f} cores",
            *([to_disk] if shown.writes else []),
            size_text(snapshot.memory_bytes),
        ]
    )
