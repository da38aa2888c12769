"""Where units run: what a run asks of an executor, and what it hears from it.

An executor starts units and tells what becomes of them; it decides nothing. The order of the units,
limits, what a crash costs, and whether a result counts are the build's (`session.py`). So another
executor is one module: it sends `Setup` and an `Assignment` to wherever a `UnitRunner` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import Exam
from tokenmill.errors import TokenmillError
from tokenmill.read.sources import Source
from tokenmill.read.units import Unit
from tokenmill.run.units.assignment import Assignment, Outcome, Setup, Tally


@dataclass(frozen=True, slots=True)
class Phase:
    """What all units of a phase share: one engine, and how workers are examined."""

    setup: Setup
    """For workers in other processes: it can be sent as JSON."""
    sources: Sequence[Source]
    """All of them; a worker is told of those that it reads."""
    exam: Future[Exam]
    """What the engine of every worker must pass."""
    reference: Engine
    """What audits are held against, behind its guards."""
    twin: Callable[[], Engine | None] | None = None
    """For workers in this process: makes the engine, if it is an object of the user's, which cannot
    always be made again from its file. Only to be called once the exam is there."""
    max_units: int | None = None
    """No more units than so many will be started; None: nobody knows."""
    is_repeated: bool = False
    """Whether the only unit has been encoded before, and broke nothing."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A worker has loaded its engine."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A worker's engine has passed the exam: its results count."""

    worker: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """A worker has done another batch of a unit."""

    key: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class Encoded:
    """A unit is written; its files are being flushed. For the books of time; it may be left out."""

    key: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A unit's files have their names; the receipt may be written."""

    worker: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """An error ended a unit, or if the key is "", a worker's engine."""

    worker: int
    key: str
    error: TokenmillError
    source: int | None = None
    """The source that was being read."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """A worker died over a unit, or had to be ended: the build decides if the unit runs again."""

    key: str
    what: str
    """As "a worker died"."""
    why: str
    where: str = ""
    """The document; "" if only the last finished batch is known."""
    hint: str = (
        "remove the document at that place or take another tokenizer; if memory is short, "
        "lower --workers or raise --memory"
    )


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker has ended; the build hands its unfinished units out again."""

    worker: int
    keys: tuple[str, ...]
    """Units that it had and that did not crash."""
    exam: str = ""
    """How it ended over the calibration texts, if it was there."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A worker whose memory had grown was replaced by a fresh one."""


Event = Loaded | Calibrated | Advanced | Encoded | Finished | Failed | Crashed | Gone | Replaced
Tell = Callable[[Event], None]
"""Takes an event, in the thread that called the executor. It may raise to end the phase."""


class Executor(Protocol):
    """Runs units somewhere. All but `wake` are called from one thread."""

    def begin(self, phase: Phase, tell: Tell) -> None:
        """Start workers that load the engine and take the exam."""

    def room(self) -> int:
        """How many units may be started now."""

    def start(self, assignment: Assignment, upcoming: Sequence[Unit]) -> None:
        """Start a unit; `upcoming` will probably follow, for reading ahead.

        If it is `careful`, it has crashed before, and needs a worker that has run nothing yet.
        """

    def wait(self, seconds: float) -> None:
        """Tell what happens; return at the latest after so many seconds, or after `wake`."""

    def wake(self) -> None:
        """End a wait: there may be new units. Called from other threads."""

    def end(self) -> None:
        """Stop all workers of the phase, whatever they are at."""

    def pids(self) -> set[int]:
        """Processes of workers on this machine, whose time and memory are shown."""
