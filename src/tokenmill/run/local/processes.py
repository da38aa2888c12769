"""The executor of one machine: worker processes, or this process alone."""

from __future__ import annotations

from collections.abc import Sequence

from tokenmill.read.units import Unit
from tokenmill.run.executor import Phase, Tell
from tokenmill.run.local.crew import Crew
from tokenmill.run.local.fleet import Fleet
from tokenmill.run.local.in_process import InProcess
from tokenmill.run.machine.resources import Resources
from tokenmill.run.units.assignment import Assignment


class LocalProcesses:
    """Runs units in workers that start, imports done, before there is anything to tell them.

    One worker runs in this process, unless it is to be watched.
    """

    def __init__(self, resources: Resources) -> None:
        self._fleet = Fleet(resources)
        self._phase: Crew | InProcess | None = None

    def __enter__(self) -> LocalProcesses:
        self._fleet.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers at once: what they have not committed is run again by a resume."""
        self._fleet.dismiss_all()

    def begin(self, phase: Phase, tell: Tell) -> None:
        most = phase.max_units or self._fleet.resources.num_workers
        if min(most, self._fleet.resources.num_workers) == 1 and not phase.setup.is_watched:
            self._phase = InProcess(phase, tell)
        else:
            self._phase = Crew(phase, tell, self._fleet)

    def room(self) -> int:
        return self._phase.room() if self._phase else 0

    def start(self, assignment: Assignment, upcoming: Sequence[Unit]) -> None:
        assert self._phase
        self._phase.start(assignment, upcoming)

    def wait(self, seconds: float) -> None:
        assert self._phase
        self._phase.wait(seconds)

    def wake(self) -> None:
        if self._phase:
            self._phase.wake()

    def end(self) -> None:
        phase, self._phase = self._phase, None
        if phase:
            phase.end()

    def pids(self) -> set[int]:
        return self._phase.pids() if self._phase else set()
