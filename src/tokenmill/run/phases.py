"""Run all units of a task with the first exact engine, up to a limit, without damaged files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from tokenmill.core.errors import DataError, TokenmillError
from tokenmill.encode.exactness import (
    CalibrationVetoError,
    Exam,
    audit_share,
    with_first_exact,
)
from tokenmill.read.units import Stream, Unit, decompressed_bytes
from tokenmill.run.executor import Executor, Phase
from tokenmill.run.job import NO_LIMIT, Limit, Setup
from tokenmill.run.journal.claims import Claims
from tokenmill.run.journal.ledger import Ledger
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.session import Session
from tokenmill.run.task import Task
from tokenmill.run.work import WorkQueue
from tokenmill.run.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Phases:
    """One attempt at all units without a receipt."""

    workspace: Workspace
    task: Task[Any]
    executor: Executor
    ledger: Ledger
    board: ProgressBoard
    exam: Future[Exam]
    claims: Claims | None = None
    """The work of this agent. None means everything."""

    def run(self, on_engine: Callable[[str, str], None]) -> str:
        """Run all units. If calibration rejects an engine, the next one takes over.

        `on_engine` is called with the name of each engine that is tried, and with a remark if
        calibration rejected it. Returns the engine that was used.

        Raises:
            TokenmillError: a unit failed, or a file is damaged and must not be left out.
        """
        engines = (self.ledger.engine,) if self.ledger.engine else self.task.job.engines

        def run_all(name: str) -> str:
            on_engine(name, "")
            self._run_all(self._phase(name))
            return name

        def tell(name: str, veto: CalibrationVetoError) -> None:
            on_engine(name, f"vetoed: {veto.why}")

        return with_first_exact(engines, run_all, tell)

    def _phase(self, engine: str) -> Phase:
        """Return the phase for an engine."""
        task, workspace = self.task, self.workspace
        num_bytes = sum(map(decompressed_bytes, task.sources))
        share = audit_share(task.recipe.limits.audit_share, num_bytes, task.job.is_slow)
        setup = Setup(
            job=task.job,
            engine=engine,
            resources=task.resources,
            growth_bytes=task.resources.growth_bytes,
            audit_share=share,
            scratch=str(workspace.scratch.resolve()),
            out=workspace.location if workspace.bucket else str(workspace.folder.resolve()),
            tokenizer_dir=str((workspace.folder / "tokenizer").resolve()),
            tokenizer_source=task.tokenizer_source,
        )
        return Phase(setup, task.sources, self.exam, task.encoder, task.local_engine)

    def _run_all(self, phase: Phase) -> None:
        """Run all units without a receipt; the unit that reaches a limit runs up to the limit.

        Damaged files are quarantined or raise an error at the end, unless they come after a limit.
        Units with lost files run again. Work that other agents hold is left to them, unless this
        agent waits for the others.
        """
        ledger = self.ledger
        while not (ledger.is_complete() or self.workspace.is_complete()):
            crossed = ledger.crossing
            session = self._limited(phase, *crossed) if crossed else self._unlimited(phase)
            session.run()
            behind_limit = ledger.is_complete() or (ledger.crossing and not crossed)
            if session.damaged and not behind_limit:
                if crossed or self.task.recipe.limits.on_bad_file == "fail":
                    raise _damaged_files(list(session.damaged.values()))
                ledger.quarantine(session.damaged)
            elif not ledger.is_complete() and ledger.crossing is None:
                if self.claims and self.claims.parked:
                    raise next(iter(self.claims.parked.values()))
                return  # other agents hold the rest
        if self.claims:
            self.claims.heed_others()
        ledger.read_all()
        if not ledger.is_complete() and not self.workspace.is_complete():
            replace(self, claims=None)._run_all(phase)  # files were lost

    def _unlimited(self, phase: Phase) -> Session:
        """Return the session for all units without a receipt."""
        ledger, items = self.ledger, self.ledger.sound_items()
        left = [item for item in items if not ledger.is_finished(item)]
        if left and all(isinstance(item, Unit) for item in left):
            phase = replace(phase, max_units=len(left))
        return self._session(
            phase, items, lambda key: key not in ledger.finished, claims=self.claims
        )

    def _limited(self, phase: Phase, key: str, limit: Limit) -> Session:
        """Return the session for the unit that reaches a limit, up to the limit."""
        items = [item for item in self.ledger.items if item.holds(key)]
        one = replace(phase, max_units=1, is_repeated=True)
        return self._session(one, items, lambda wanted: wanted == key, limit)

    def _session(
        self,
        phase: Phase,
        items: list[Unit | Stream],
        wanted: Callable[[str], bool],
        limit: Limit = NO_LIMIT,
        claims: Claims | None = None,
    ) -> Session:
        queue = WorkQueue(
            sources=self.task.sources,
            fields=self.task.fields,
            items=items,
            scratch=self.workspace.scratch,
            ledger=self.ledger,
            wanted=wanted,
            num_feeders=(self.task.resources.num_workers + 1) // 2,
            prefetch=self.task.resources.prefetch,
            claims=claims,
            is_published=self.workspace.is_complete,
        )
        in_threads = self.task.resources.num_workers > 1 and not phase.is_repeated
        return Session(self.executor, phase, queue, self.ledger, self.board, limit, in_threads)


def _damaged_files(errors: list[TokenmillError]) -> TokenmillError:
    if len(errors) == 1:
        return errors[0]
    places = "; ".join(f"{error.where}: {error.why}" for error in errors)
    return DataError(f"{len(errors)} input files are damaged", why=places, hint=errors[0].hint)
