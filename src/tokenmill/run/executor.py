"""The interface of executors: what a run asks of them, and the events that they report.

An executor starts units and reports events; it decides nothing. `session.py` decides the order of
units, applies limits, retries crashed units, and accepts results. A new executor is therefore one
module: it sends `Setup` and each `Assignment` to the place where a `UnitRunner` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from tokenmill.core.errors import TokenmillError
from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import Exam
from tokenmill.read.source import Source
from tokenmill.read.units import Unit
from tokenmill.run.units.assignment import Assignment, Outcome, Setup, Tally


@dataclass(frozen=True, slots=True)
class Phase:
    """What all units of a phase share: one engine, and the exam that its workers must pass."""

    setup: Setup
    """The setup of a worker. Can be sent to other processes as JSON."""
    sources: Sequence[Source]
    """All sources. Each assignment carries only those that it reads."""
    exam: Future[Exam]
    """The exam that the engine of every worker must pass."""
    reference: Engine
    """The reference that audits compare with."""
    twin: Callable[[], Engine | None] | None = None
    """Creates the engine of a worker in this process, if the tokenizer is a Python object.

    Such an object cannot always be loaded again from its file. Call this only once the exam is
    ready."""
    max_units: int | None = None
    """The most units that will be started. None if unknown."""
    is_repeated: bool = False
    """Whether the only unit was already encoded once without a crash."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A worker has loaded its engine."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A worker's engine has passed the exam, so its results count."""

    worker: int


@dataclass(frozen=True, slots=True)
class Advanced:
    """A worker has finished another batch of a unit."""

    key: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class Encoded:
    """A unit is written, and its files are being flushed. Optional, for timing only."""

    key: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A unit's files have their final names, so its receipt can be written."""

    worker: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """An error ended a unit, or a worker's engine if the key is ""."""

    worker: int
    key: str
    error: TokenmillError
    source: int | None = None
    """The index of the source that was being read."""


@dataclass(frozen=True, slots=True)
class Crashed:
    """A worker died while it ran a unit, or was killed. The session may run the unit again."""

    key: str
    what: str
    """For example "a worker died"."""
    why: str
    where: str = ""
    """The document. "" if only the last finished batch is known."""
    hint: str = (
        "remove the document at that position or use another tokenizer; if memory is short, "
        "lower --workers or raise --memory"
    )


@dataclass(frozen=True, slots=True)
class Gone:
    """A worker has ended. The session hands out its unfinished units again."""

    worker: int
    keys: tuple[str, ...]
    """The worker's units that did not crash."""
    exam: str = ""
    """How it died, if it died on the calibration texts."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A worker was replaced because its memory had grown."""


Event = Loaded | Calibrated | Advanced | Encoded | Finished | Failed | Crashed | Gone | Replaced
Tell = Callable[[Event], None]
"""Receives events in the thread that called the executor. May raise to end the phase."""


class Executor(Protocol):
    """Runs units. All methods but `wake` are called from one thread."""

    def begin(self, phase: Phase, tell: Tell) -> None:
        """Start workers that load the engine and take the exam."""

    def room(self) -> int:
        """Return how many units can be started now."""

    def start(self, assignment: Assignment, upcoming: Sequence[Unit]) -> None:
        """Start a unit. `upcoming` are units that will probably follow, for reading ahead.

        A `careful` assignment has crashed before and needs a fresh worker.
        """

    def wait(self, seconds: float) -> None:
        """Report events. Returns after at most `seconds`, or after `wake`."""

    def wake(self) -> None:
        """End a wait, because there may be new units. Called from other threads."""

    def end(self) -> None:
        """Stop all workers of the phase at once."""

    def pids(self) -> set[int]:
        """Return the process ids of workers on this machine, for CPU and memory figures."""
