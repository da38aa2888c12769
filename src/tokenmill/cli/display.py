"""Displays of a run: lines for people (`cli/meter.py`), or JSON for machines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar, Union

import psutil

from tokenmill.cli.meter import Meter
from tokenmill.cli.tables import fact_lines, print_json
from tokenmill.core.errors import Interrupted
from tokenmill.core.values import counted, duration_text, rounded, size_text
from tokenmill.read.source import FetchProgress, Source
from tokenmill.run.journal.ledger import num_finished_units
from tokenmill.run.progress import Snapshot
from tokenmill.run.task import RunEvents

JSON_SECONDS = 5.0

P = TypeVar("P")
R = TypeVar("R")
Display = Union["JsonDisplay[P, R]", "TextDisplay[P, R]"]


@dataclass(frozen=True, slots=True)
class Shown(Generic[P, R]):
    """What is shown of a kind of run. `P` is the run before its first unit, `R` its report."""

    counted: str
    """What is counted besides documents, for example "tokens"."""
    lines: Callable[[R, float, bool], list[str]]
    """The summary as lines, from the report, the seconds before the first unit, and `verbose`."""
    values: Callable[[R], dict[str, object]]
    """The summary as values for JSON."""
    facts: Callable[[P], Iterable[tuple[str, str]]] = lambda prepared: ()
    """What is known before the first unit: names and values, for --verbose and JSON."""
    opening: Callable[[P], Iterable[tuple[str, str]]] = lambda prepared: ()
    """The same in a line or two, shown by default."""


@contextmanager
def display_for(
    shown: Shown[P, R], *, json: bool, verbose: bool = False
) -> Iterator[Display[P, R]]:
    """Yield the display for people or for machines."""
    if json:
        yield JsonDisplay(shown)
        return
    display = TextDisplay(shown, verbose)
    try:
        yield display
    finally:
        display.meter.clear()


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
        if self._is_due() or progress.done_bytes == progress.total_bytes:
            self._emit("download", asdict(progress))

    def compare(self, source: Source) -> None:
        self._emit("compare", {"input": source.name, "bytes": source.num_bytes})

    def prepared(self, prepared: P) -> None:
        self._emit("prepared", dict(self._shown.facts(prepared)))

    def engine(self, engine: str, remark: str) -> None:
        self._emit("engine", {"engine": engine, "remark": remark})

    def progress(self, snapshot: Snapshot) -> None:
        names = [name for name in Snapshot.__slots__ if name != "cpu_cores" or snapshot.cpu_cores]
        values = {name: getattr(snapshot, name) for name in names}
        self._emit("progress", {**values, "eta_seconds": snapshot.eta_seconds})

    def advance(self, stage: str, done: int, total: int) -> None:
        """Emit an event named after the stage every few seconds."""
        if self._is_due():
            self._emit(stage, {"done": done, "total": total})

    def compiling(self) -> None:
        """Emit nothing: this takes a few seconds, once."""

    def finish(self, report: R) -> None:
        self._emit("finished", self._shown.values(report))

    def leave(self, out: str) -> None:
        self._emit("left", {"out": out})

    def _is_due(self) -> bool:
        due = time.monotonic() - self._last >= JSON_SECONDS
        self._last = time.monotonic() if due else self._last
        return due

    def _emit(self, event: str, values: dict[str, object]) -> None:
        print_json({"event": event, **values})


class TextDisplay(Generic[P, R]):
    """Lines on standard error, and the summary on standard output."""

    def __init__(self, shown: Shown[P, R], verbose: bool) -> None:
        self.meter = Meter()
        self._shown, self._verbose = shown, verbose
        self._startup = 0.0

    def download(self, progress: FetchProgress) -> None:
        sizes = f"{size_text(progress.done_bytes)} of {size_text(progress.total_bytes)}"
        files = f"{progress.done_files:,} of {counted(progress.num_files, 'file')}"
        share = progress.done_bytes / max(progress.total_bytes, 1)
        self.meter.draw(share, f"downloaded {sizes}, {files}")

    def compare(self, source: Source) -> None:
        size = size_text(source.num_bytes)
        self._say("comparing", f"{source.name}: modified since the last build, {size}")

    def prepared(self, prepared: P) -> None:
        """Say what is read with what."""
        self._startup = time.time() - psutil.Process().create_time()
        facts = self._shown.facts if self._verbose else self._shown.opening
        for name, value in facts(prepared):
            self._say(name, value)

    def engine(self, engine: str, remark: str) -> None:
        if remark or self._verbose:
            self._say("engine", f"{engine}{' ' + remark if remark else ''}")

    def progress(self, snapshot: Snapshot) -> None:
        share = snapshot.done_bytes / max(snapshot.total_bytes, 1)
        self.meter.draw(share, _progress_line(snapshot, self._shown))

    def advance(self, stage: str, done: int, total: int) -> None:
        """Show the progress of a stage after the last unit."""
        self.meter.advance(stage, done, total)

    def compiling(self) -> None:
        """Say that code is compiled, which takes a few seconds."""
        self._say("compiling", "for this machine; later runs will not have to")

    def finish(self, report: R) -> None:
        """Print the summary."""
        self.meter.clear()
        lines = self._shown.lines(report, self._startup, self._verbose)
        print("\n".join(lines), flush=True)

    def leave(self, out: str) -> None:
        """Say that this agent has nothing left to do."""
        self._say("left", f"other agents finish the rest: tokenmill status {out}")

    def _say(self, name: str, value: str) -> None:
        self.meter.clear()
        lines = fact_lines([(name, value)], 12, sys.stderr)
        print("\n".join(lines), file=sys.stderr, flush=True)


def _progress_line(snapshot: Snapshot, shown: Shown[P, R]) -> str:
    if snapshot.num_awaited:
        items = counted(snapshot.num_awaited, "item")
        return (
            f"waiting for {items} of other agents; takes over from one that is silent for "
            "--patience (default: 6 to 60 s)"
        )
    if 0 < snapshot.total_bytes <= snapshot.done_bytes:
        return "writing the last files and the manifest"
    seconds, before = max(snapshot.elapsed_seconds, 1e-9), snapshot.resumed
    documents, tokens = snapshot.documents - before.documents, snapshot.tokens - before.tokens
    if not documents and not snapshot.rejected:
        return "reading the first documents"
    parts = [
        f"{rounded(tokens / seconds)} {shown.counted}/s",
        f"{size_text((snapshot.read_bytes - before.bytes) / seconds, rounded)}/s of text",
        f"{rounded(documents / seconds)} documents/s",
        counted(snapshot.documents, "document"),
        f"{snapshot.rejected:,} rejected",
        f"{snapshot.cpu_cores:.1f} cores",
        size_text(snapshot.memory_bytes),
    ]
    eta = snapshot.eta_seconds
    return ", ".join([f"eta {duration_text(eta)}", *parts] if eta else parts)
