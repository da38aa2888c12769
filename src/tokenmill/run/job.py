"""Run all units of a task with the first exact engine, up to a limit, without damaged files."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import msgspec

from tokenmill.core.errors import DataError, TokenmillError
from tokenmill.encode.engine import Encoder, Engine
from tokenmill.encode.exactness import (
    CalibrationVetoError,
    Exam,
    audit_share,
    excluded_error_rate,
    with_first_exact,
)
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import unknown_step
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.fields import Fields
from tokenmill.read.source import Source
from tokenmill.read.units import Stream, Unit, decompressed_bytes
from tokenmill.run.agents.claims import Claims
from tokenmill.run.agents.presence import attempts_of
from tokenmill.run.commit.identity import AnyIdentity, versions
from tokenmill.run.commit.ledger import Ledger
from tokenmill.run.commit.publish import describe_rows
from tokenmill.run.commit.workspace import Workspace
from tokenmill.run.executor import Executor, Phase
from tokenmill.run.machine.resources import PYTHON_BATCH_BYTES, Resources
from tokenmill.run.progress import Listener, ProgressBoard
from tokenmill.run.recipe.options import LimitOptions
from tokenmill.run.session import Session
from tokenmill.run.units.assignment import NO_LIMIT, Limit, Receipt, Setup
from tokenmill.run.units.tasks import Task
from tokenmill.run.work import Inputs, WorkQueue
from tokenmill.store.manifest import Attempt, Audit, Run


@dataclass(frozen=True, slots=True)
class CheckedTask:
    """A task, and what its engine is checked against."""

    task: Task
    file: TokenizerFile
    """The tokenizer, or the steps of a split in the form of one."""
    exam: Future[Exam]
    reference: Encoder
    twin: Callable[[], Engine | None] | None = None
    """See `Phase.twin`."""


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at all units without a receipt."""

    workspace: Workspace
    sources: Sequence[Source]
    fields: Fields
    resources: Resources
    limits: LimitOptions
    executor: Executor
    ledger: Ledger
    board: ProgressBoard
    checked: CheckedTask
    claims: Claims | None = None
    """The work of this agent. None means everything."""

    def run(self, engines: Sequence[str], on_engine: Callable[[str, str], None]) -> str:
        """Run all units. If calibration rejects an engine, the next one takes over.

        Args:
            engines: names, best first.
            on_engine: called with the name of each engine that is tried, and with a remark if
                calibration rejected it.

        Returns:
            The engine that was used.

        Raises:
            TokenmillError: a unit failed, or a file is damaged and must not be left out.
        """
        if chosen := self.ledger.engine:
            engines = (chosen,)

        def run_all(name: str) -> str:
            on_engine(name, "")
            self._run_all(self._phase(name))
            return name

        def tell(name: str, veto: CalibrationVetoError) -> None:
            on_engine(name, f"vetoed: {veto.why}")

        return with_first_exact(engines, run_all, tell)

    def record(
        self, recipe: object, identity: AnyIdentity, engine: str, num_calibrated: int, wall: float
    ) -> Run:
        """Return the record of the run; `wall` is the time that this agent took, in seconds."""
        seconds = {**self.board.seconds, "wall": wall}
        receipts = self.ledger.final_receipts()
        num_audited = sum(receipt.audited for receipt in receipts)
        return Run(
            recipe=msgspec.to_builtins(recipe),
            identity=msgspec.to_builtins(identity),
            inputs=[source.where for source in self.sources],
            host=socket.gethostname(),
            versions=versions(),
            engine=engine,
            audited_documents=num_audited,
            audit=audit_of(receipts),
            calibrated_texts=num_calibrated,
            attempts=attempts_of(self.workspace.store),
            seconds={name: round(spent, 3) for name, spent in seconds.items()},
            peak_bytes=self.board.peak_bytes,
            row_digests=describe_rows(receipts),
        )

    def _phase(self, engine: str) -> Phase:
        """Return the phase for an engine."""
        checked, workspace, resources = self.checked, self.workspace, self.resources
        is_slow = KINDS[checked.file.kind].is_slow
        num_bytes = sum(map(decompressed_bytes, self.sources))
        setup = Setup(
            task=checked.task,
            fields=self.fields,
            engine=engine,
            is_watched=bool(unknown_step(checked.file)),
            batch_bytes=PYTHON_BATCH_BYTES if is_slow else resources.batch_bytes,
            cache_bytes=resources.cache_bytes,
            audit_share=audit_share(self.limits.audit_share, num_bytes, is_slow),
            growth_bytes=resources.growth_bytes,
            scratch=str(workspace.scratch.resolve()),
            out=workspace.location if workspace.bucket else str(workspace.folder.resolve()),
        )
        return Phase(setup, self.sources, checked.exam, checked.reference, checked.twin)

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
                if crossed or self.limits.on_bad_file == "fail":
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
            inputs=Inputs(self.sources, self.fields, items),
            scratch=self.workspace.scratch,
            ledger=self.ledger,
            wanted=wanted,
            num_feeders=(self.resources.num_workers + 1) // 2,
            prefetch=self.resources.prefetch,
            claims=claims,
            is_published=self.workspace.is_complete,
        )
        in_threads = self.resources.num_workers > 1 and not phase.is_repeated
        return Session(self.executor, phase, queue, self.ledger, self.board, limit, in_threads)


def audit_of(receipts: Sequence[Receipt]) -> Audit | msgspec.UnsetType:
    """Summarize the audits of all units, if all used the same audit share."""
    shares = {receipt.audit_share for receipt in receipts}
    drawn = sum(receipt.audit_drawn or 0 for receipt in receipts)
    share = shares.pop() if len(shares) == 1 else msgspec.UNSET
    if share is msgspec.UNSET or not drawn:
        return msgspec.UNSET
    is_all = drawn == sum(receipt.documents for receipt in receipts)
    rate = 0.0 if is_all else round(excluded_error_rate(drawn), 9)
    return Audit(share=share, drawn=drawn, excluded_error_rate=rate)


def attempt_with(resources: Resources, limits: LimitOptions) -> Attempt:
    """Return the record of an attempt that starts now."""
    return Attempt(
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        workers=resources.num_workers,
        memory_bytes=resources.memory_bytes,
        recycled_workers=0,
        max_bad=limits.max_bad,
        on_bad_file=limits.on_bad_file,
    )


def board_for(
    ledger: Ledger, total_bytes: int, result_bytes: int, listener: Listener, executor: Executor
) -> ProgressBoard:
    """Return the progress board of a job that writes `result_bytes` for each token."""
    board = ProgressBoard(total_bytes, result_bytes, listener, pids=executor.pids)
    board.resume(ledger.receipts, {i.key: i for i in ledger.items if isinstance(i, Unit)})
    return board


def _damaged_files(errors: list[TokenmillError]) -> TokenmillError:
    if len(errors) == 1:
        return errors[0]
    places = "; ".join(f"{error.where}: {error.why}" for error in errors)
    return DataError(f"{len(errors)} input files are damaged", why=places, hint=errors[0].hint)
