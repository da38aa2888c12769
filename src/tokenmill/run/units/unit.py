"""Run one unit, from its sources to finished files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokenmill.core.errors import EngineError
from tokenmill.core.records import DocumentBatch
from tokenmill.encode.engine import Engine
from tokenmill.encode.exactness import Exam, check_engine
from tokenmill.read.documents import Reader, grouped
from tokenmill.read.source import Source
from tokenmill.run.job import NO_LIMIT, Count, Encode, Measure, Setup
from tokenmill.run.messages import Assignment, Outcome, Tally, receipt_name
from tokenmill.run.units.attempt import Announce, CarefulCalls, TaskRunner, UnitAttempt
from tokenmill.run.units.encode import EncodeRunner
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import MANIFEST_NAME
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store


def load_task(setup: Setup, engine: Engine | None) -> TaskRunner:
    """Return the runner for the task of a setup. Pass `engine` if this process already has it."""
    match setup.job.task:
        case Encode():
            return EncodeRunner(setup, setup.job.task, engine)
        case Count():
            from tokenmill.run.units.count import CountRunner  # loads a compiler

            return CountRunner(setup, setup.job.task)
        case Measure():
            from tokenmill.run.units.measure import MeasureRunner  # loads a compiler

            return MeasureRunner(setup, setup.job.task, engine)


@dataclass(slots=True)
class FinishedUnit:
    """A unit with written files that do not have their final names yet."""

    outcome: Outcome
    _attempt: UnitAttempt
    _store: ObjectStore

    def commit(self) -> Outcome:
        """Store the files under their final names, so that the receipt can be written.

        Does nothing if another agent has already stored a receipt or published the dataset. The
        caller compares the two receipts.
        """
        started = time.perf_counter()
        receipt = self.outcome.receipt
        done = (receipt_name(receipt.key), MANIFEST_NAME)
        if all(self._store.size(name) is None for name in done):
            parts = [file.name for file in receipt.files]
            files = {part_name(receipt.key, part): self._attempt.path(part) for part in parts}
            self._store.add_files(files)
        self._attempt.remove_files()
        self.outcome.seconds["fsync"] = time.perf_counter() - started
        return self.outcome


class UnitRunner:
    """Runs units. Holds what the task loads once."""

    def __init__(self, setup: Setup, engine: Engine | None = None) -> None:
        """Load the task, with `engine` if given: a Python tokenizer of this process."""
        started = time.perf_counter()
        self.setup = setup
        self._store = open_store(setup.out)
        self._task = load_task(setup, engine)
        self._sources: dict[int, Source] = {}
        """The sources of the running unit, by index."""
        self._careful = CarefulCalls(self._sources, self._task.steps)
        self._reader = Reader(self._sources, setup.job.fields, setup.batch_bytes)
        self.current_source: int | None = None
        """The index of the source that is being read, to report if it is damaged."""
        self.startup_seconds = time.perf_counter() - started

    def calibrate(self, exam: Exam) -> None:
        """Raise an EngineError if this worker's engine differs from the reference."""
        check_engine(self._task.encoder, exam)

    def run(
        self,
        assignment: Assignment,
        report: Callable[[Tally], None],
        announce: Announce = lambda encoding: None,
    ) -> FinishedUnit:
        """Run a unit and write its files under temporary names; `FinishedUnit.commit` stores them.

        A careful assignment encodes each document alone, and announces each. Otherwise, only long
        batches are announced.
        """
        self._sources.clear()
        self._sources.update({source.index: source for source in assignment.sources})
        attempt = UnitAttempt(self.setup, assignment, self._careful, announce)
        self._reader.observe = attempt.digests.observe
        unit = self._task.begin(attempt)
        try:
            batches = attempt.timed("read", self._batches(assignment))
            # Read nothing after a limit: the digest of a source covers everything that was read.
            group_bytes = self.setup.batch_bytes if assignment.limit == NO_LIMIT else 0
            for group in grouped(batches, group_bytes):
                for batch in group:
                    attempt.digests.add_rows(batch)
                unit.add(group)
                report(attempt.tally)
                if attempt.limited:
                    break
            with attempt.timing("write"):
                files = unit.close()
            return FinishedUnit(attempt.outcome(files), attempt, self._store)
        except MemoryError as error:
            unit.discard()
            raise self._out_of_memory() from error
        except BaseException:
            unit.discard()
            raise

    def _out_of_memory(self) -> EngineError:
        # None before the first extent: then no source is to blame.
        source = None if self.current_source is None else self._sources.get(self.current_source)
        return EngineError(
            "not enough memory to encode a document",
            where=f"{source.where if source else ''}, at or after position {self._reader.position}",
            why="documents are encoded whole",
            hint="give the process more memory, lower --workers, or split the document",
        )

    def _batches(self, assignment: Assignment) -> Iterator[DocumentBatch]:
        for extent in assignment.unit.extents:
            if extent.source not in assignment.excluded:
                self.current_source = extent.source
                yield from self._reader.read(extent, assignment.spool)
