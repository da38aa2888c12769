"""An executor as another package would write it: last first, and it dies when told to."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import msgspec

from tokenmill.core.errors import EngineError, TokenmillError
from tokenmill.encode.exactness import Exam
from tokenmill.run.executor import (
    Assignment,
    Calibrated,
    Crashed,
    Gone,
    Loaded,
    Phase,
    Tell,
    failure,
)
from tokenmill.run.job import Setup
from tokenmill.run.worker import UnitRunner

ROOM = 5


class LastFirst:
    """One worker behind a queue. It takes the exam only when it has nothing else to do."""

    def __init__(self, deaths: Mapping[str, int] | None = None, refused: str = "") -> None:
        """It dies over a unit so many times; the exam fails for the engine `refused`."""
        self.deaths = Counter(deaths or {})
        self.refused = refused
        self.finished: list[str] = []
        self.careful: list[str] = []
        self._queue: list[Assignment] = []
        self._woken = threading.Event()
        self._worker = 0
        self._calibrated = False

    def begin(self, phase: Phase, tell: Tell) -> LastFirst:
        self._tell = tell
        setup = msgspec.convert(msgspec.to_builtins(phase.setup), Setup)
        self._runner = UnitRunner(setup)
        self._exam: Exam = phase.exam.result()
        tell(self._worker, Loaded(self._runner.startup_seconds))
        return self

    def room(self) -> int:
        return ROOM - len(self._queue)

    def start(self, assignment: Assignment) -> None:
        self._queue.append(assignment)

    def wait(self, seconds: float) -> None:
        if self._queue:
            self._run(self._queue.pop())
        elif not self._calibrated:
            self._take_exam()
        else:
            self._woken.wait(seconds)
            self._woken.clear()

    def wake(self) -> None:
        self._woken.set()

    def end(self) -> None:
        self._queue.clear()
        self._worker, self._calibrated = self._worker + 1, False

    def pids(self) -> set[int]:
        return set()

    def _run(self, assignment: Assignment) -> None:
        key = assignment.unit.key
        self.careful += [key] if assignment.careful else []
        if self.deaths[key] > 0:
            self.deaths[key] -= 1
            return self._die(key)
        try:
            outcome = self._runner.run(assignment, lambda tally: None).commit()
        except TokenmillError as error:
            self._tell(self._worker, failure(key, error, self._runner.current_source))
        else:
            self.finished.append(key)
            self._tell(self._worker, outcome)

    def _die(self, key: str) -> None:
        others = tuple(each.unit.key for each in self._queue)
        dead = self._worker
        self.end()
        self._tell(dead, Crashed(key, "a toy died", why="was told to"))
        self._tell(dead, Gone(others))

    def _take_exam(self) -> None:
        try:
            if self._runner.setup.engine == self.refused:
                raise EngineError("the toy refuses")
            self._runner.calibrate(self._exam)
        except EngineError as error:
            self._tell(self._worker, failure("", error))
        self._calibrated = True
        self._tell(self._worker, Calibrated())
