"""Watching runs: what is known of each at the moment, read again and again in threads.

A store that is slow, and a file that anybody may have written, concern only their own run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tokenmill.core.errors import TokenmillError
from tokenmill.core.values import duration_text, rounded, size_text
from tokenmill.reports.estimating import History, Remaining
from tokenmill.reports.status import NO_BUILD, BuildStatus, run_status
from tokenmill.reports.status_facts import status_facts
from tokenmill.store.open_metrics import Gauge, read_gauges

POLL_SECONDS, MOST_SECONDS, COMPLETE_SECONDS = 1.0, 60.0, 10.0
"""The time between two looks: usually, at most, and at a complete run, which may be replaced."""
MOST_TIME = 0.1
"""The most time to spend on reading, as a share: slow stores are read less often."""
STALE_SECONDS = 10.0
CURVE_PARTS = 120
RESTING = ("complete", "stopped", "silent")


@dataclass(frozen=True, slots=True)
class Watched:
    """A run at a moment. A page, a terminal and lines are ways to draw it."""

    name: str
    state: str = "waiting"
    """The stage of the run; "reading" before the first look, "waiting" if nothing has begun there,
    "measured" for a file of metrics."""
    problem: str = ""
    """Why it cannot be read."""
    status: BuildStatus | None = None
    remaining: Remaining | None = None
    curve: list[float] = field(default_factory=list)
    """Bytes a second over time, in parts of equal length."""
    curve_seconds: float = 0.0
    speed: tuple[float, float] = (0.0, 0.0)
    """Bytes and tokens a second of late."""
    gauges: list[Gauge] = field(default_factory=list)
    read_at: float = field(default_factory=time.monotonic)

    @property
    def share(self) -> float:
        """The share that is done."""
        if self.status is None or not self.status.bytes_total:
            return float(self.state == "complete")
        return self.status.bytes_done / self.status.bytes_total

    @property
    def headline(self) -> str:
        """The state, with the share that is done if the run is between its start and its end."""
        if self.state == "waiting":
            return "waiting, because nothing has begun there yet"
        return f"{self.state}, {self.share:.0%}" if 0 < self.share < 1 else self.state

    @property
    def note(self) -> str:
        """What is wrong with the run or with the report; "" if nothing."""
        parts, status, age = [self.problem], self.status, time.monotonic() - self.read_at
        if status is not None and self.state in ("silent", "stopped"):
            whys = (agent.why for agent in status.agents if agent.why != "done")
            why = next(whys, "stopped") if self.state == "stopped" else "the last report came"
            since = duration_text(max(time.time() - status.said_at, 0.0))
            parts.append(f"{why} {since} ago; the same command resumes it")
        if age > STALE_SECONDS and self.state != "complete":
            parts.append(f"last read {duration_text(age)} ago")
        return "; ".join(filter(None, parts))


def run_facts(run: Watched) -> Iterator[tuple[str, str]]:
    """Yield what is known of a build or an export, as names and values."""
    known = list(status_facts(run.status)) if run.status is not None else []
    yield from (fact for fact in known if fact[0] == "done")
    if (left := run.remaining) is not None:
        most = f"to {duration_text(left.most)}" if left.most is not None else "or much longer"
        yield (
            "time left",
            f"{duration_text(left.seconds)}, likely {duration_text(left.least)} {most}",
        )
    num_bytes, tokens = run.speed
    if num_bytes:
        also = f" and {rounded(tokens)} tokens" if tokens else ""
        yield "speed", f"{size_text(num_bytes, rounded)}{also} a second"
    yield from (fact for fact in known if fact[0] not in ("done", "time left"))


class Run:
    """One thing to watch: the output of a build or an export, or a file of metrics."""

    def __init__(self, name: str) -> None:
        self.now = Watched(name, "reading")
        """What is known. Any thread may read it."""
        self._history, self._rests = History(), False

    def read(self) -> None:
        """Look at the files of the run. Errors become a text."""
        name = self.now.name
        try:
            if "://" not in name and Path(name).is_file():
                self.now = Watched(name, "measured", gauges=read_gauges(Path(name)))
            else:
                self.now = self._with_history(run_status(name))
        except Exception as error:  # one run must not end the others
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, TokenmillError):
                why = error.what
            problem = f"cannot read: {why}"[:1000]
            is_absent = why == NO_BUILD
            self.now = Watched(name) if is_absent else replace(self.now, problem=problem)

    def _with_history(self, status: BuildStatus) -> Watched:
        history, rests = self._history, status.stage in RESTING
        if self._rests and not rests:
            history.points.clear()
        self._rests = rests
        if not rests and status.bytes_total:
            at, done, left = status.said_at, status.bytes_done, status.eta_seconds
            if left and not history.points:  # begin with the average of the time before
                average = (status.bytes_total - done) / left
                history.add(at - done / average, 0, 0, status.attempt)
            history.add(at, done, status.tokens, status.attempt)
        unit = status.last_unit.left_seconds if status.last_unit else 0.0
        return Watched(
            self.now.name,
            status.stage,
            status=status,
            remaining=None if rests else history.remaining(status.bytes_total, unit),
            curve=history.curve(CURVE_PARTS),
            curve_seconds=history.seconds,
            speed=(0.0, 0.0) if rests else history.late(),
        )


@contextlib.contextmanager
def watching(names: Sequence[str]) -> Iterator[list[Run]]:
    """Yield runs that threads read again and again until the block ends."""
    runs, ending = [Run(name) for name in names], threading.Event()

    def follow(run: Run) -> None:
        pause = 0.0
        while not ending.wait(pause):
            begun = time.monotonic()
            run.read()
            least = COMPLETE_SECONDS if run.now.state == "complete" else POLL_SECONDS
            pause = max(least, min((time.monotonic() - begun) / MOST_TIME, MOST_SECONDS))

    for run in runs:
        threading.Thread(target=follow, args=(run,), daemon=True, name="watch").start()
    try:
        yield runs
    finally:
        ending.set()
