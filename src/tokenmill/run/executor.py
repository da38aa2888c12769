"""The interface of executors: what a run asks of the places where units run.

An executor starts units and reports events (`messages.py`); it decides nothing. `session.py`
decides the order of units, applies limits, retries crashed units, and accepts results. A new
executor is therefore one module: it sends `Setup` and each `Assignment` to the place where a
`UnitRunner` runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import Exam
from tokenmill.read.source import Source
from tokenmill.read.units import Unit
from tokenmill.run.job import Setup
from tokenmill.run.messages import Assignment, Event


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
    local_engine: Callable[[], Engine | None] | None = None
    """Creates the engine of a worker in this process; see `Task.local_engine`."""
    max_units: int | None = None
    """The most units that will be started. None if unknown."""
    is_repeated: bool = False
    """Whether the only unit was already encoded once without a crash."""


Tell = Callable[[int, Event], None]
"""Receives the number of a worker and an event, in the thread that called the executor.

May raise to end the phase."""


class Workers(Protocol):
    """The workers of a phase. All methods but `wake` are called from one thread."""

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


class Executor(Protocol):
    """Starts workers."""

    def begin(self, phase: Phase, tell: Tell) -> Workers:
        """Start workers that load the engine and take the exam."""
