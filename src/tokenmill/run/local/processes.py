"""The executor for one machine, with worker processes or only this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenmill.run.local.fleet import Fleet
from tokenmill.run.machine.resources import Resources

if TYPE_CHECKING:
    from tokenmill.encode.tokenizer import TokenizerFile
    from tokenmill.read.units import Unit
    from tokenmill.run.executor import Phase, Tell
    from tokenmill.run.local.crew import Crew
    from tokenmill.run.local.in_process import InProcess
    from tokenmill.run.units.assignment import Assignment


class LocalProcesses:
    """Runs units in worker processes, which start and load their engine ahead of time.

    A run with one worker uses this process, unless the tokenizer must be watched. A run with
    several workers never runs units in this process, so that a crash cannot end the run.
    """

    def __init__(self, resources: Resources) -> None:
        self._fleet = Fleet(resources)
        self._phase: Crew | InProcess | None = None

    def __enter__(self) -> LocalProcesses:
        self._fleet.prepare(1)
        return self

    def __exit__(self, *_: object) -> None:
        """End all workers at once. A resumed run repeats what they have not committed."""
        self._fleet.dismiss_all()

    def expect(self, num_units: int | None) -> None:
        """Start workers for this number of units. None if the number is unknown."""
        most = self._fleet.resources.num_workers
        self._fleet.prepare(most if num_units is None else num_units)

    def preload(self, file: TokenizerFile, control_tokens: bool, engine: str) -> None:
        """Let workers load an engine ahead of time; see `Fleet.preload`."""
        self._fleet.preload(file, control_tokens, engine)

    def begin(self, phase: Phase, tell: Tell) -> None:
        alone = self._fleet.resources.num_workers == 1 or phase.is_repeated
        if alone and not phase.setup.is_watched:
            from tokenmill.run.local.in_process import InProcess

            self._phase = InProcess(phase, tell)
        else:
            from tokenmill.run.local.crew import Crew

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
