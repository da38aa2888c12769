"""Run units in this process, one after another."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from tokenmill.core.errors import EngineError, TokenmillError
from tokenmill.read.units import Unit
from tokenmill.run.executor import (
    Advanced,
    Calibrated,
    Encoded,
    Failed,
    Finished,
    Loaded,
    Phase,
    Tell,
)
from tokenmill.run.units.assignment import Assignment
from tokenmill.run.units.unit import UnitRunner


class InProcess:
    """A phase in which `start` runs the whole unit. An Executor without `begin`."""

    def __init__(self, phase: Phase, tell: Tell) -> None:
        self._tell = tell
        self._pid = os.getpid()
        self._woken = threading.Event()
        try:
            engine = None
            if phase.twin:
                phase.exam.result()  # until then another thread uses the object
                engine = phase.twin()
            self._runner = UnitRunner(phase.setup, engine)
            tell(Loaded(self._runner.startup_seconds))
            self._runner.calibrate(phase.exam.result())
        except EngineError as error:
            tell(Failed(self._pid, "", error))
        tell(Calibrated(self._pid))

    def room(self) -> int:
        """Always 1, because a unit is done when `start` returns."""
        return 1

    def start(self, assignment: Assignment, _: Sequence[Unit]) -> None:
        key = assignment.unit.key
        try:
            finished = self._runner.run(assignment, lambda tally: self._tell(Advanced(key, tally)))
            self._tell(Encoded(key))
            outcome = finished.commit()
        except TokenmillError as error:
            self._tell(Failed(self._pid, key, error, self._runner.current_source))
        else:
            self._tell(Finished(self._pid, outcome))

    def wait(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        """Do nothing, because no unit is running."""

    def pids(self) -> set[int]:
        return {self._pid}
