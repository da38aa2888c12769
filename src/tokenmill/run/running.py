"""One attempt at a prepared task: agree, read the ledger, run the other units, and finish.

Units run with the first exact engine, up to a limit, without damaged files.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import msgspec
from msgspec import UNSET, UnsetType

from tokenmill.core.errors import DataError, StorageError, TokenmillError
from tokenmill.encode.exactness import (
    CalibrationVetoError,
    Exam,
    audit_share,
    excluded_error_rate,
    with_first_exact,
)
from tokenmill.read.units import Unit, decompressed_bytes
from tokenmill.run.agreement import agree_on_start
from tokenmill.run.executor import Executor, Phase, Receipt
from tokenmill.run.job import Limit, Setup, versions
from tokenmill.run.journal.agents import attempts_of, beat_seconds_for
from tokenmill.run.journal.claims import Claims, present
from tokenmill.run.journal.ledger import Ledger
from tokenmill.run.launch import AgentShare
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.publish import describe_rows
from tokenmill.run.session import Session
from tokenmill.run.task import Departure, Ended, R, RunEvents, Task
from tokenmill.run.work import WorkQueue
from tokenmill.run.workspace import Workspace
from tokenmill.store.manifest import Attempt, Audit, Run, time_now

AUDITED_BY_MAIN = 16
"""Up to this number of workers, the main process audits their units, so that only it loads the
reference. It could not keep up with more, so each of them audits its own."""


@dataclass(slots=True)
class Running(Generic[R]):
    """A prepared task that runs, in the place that it may write to."""

    workspace: Workspace
    task: Task[R]
    events: RunEvents[Any]
    executor: Executor
    share: AgentShare | None
    alone: bool
    """Whether no other agent can be working on this run."""
    started: float = field(default_factory=time.monotonic)
    ledger: Ledger = field(init=False)
    board: ProgressBoard = field(init=False)
    exam: Future[Exam] = field(init=False)

    def run(self) -> R | Departure:
        """Run all units that this agent claims, and finish if none is left.

        Raises:
            TokenmillError: a unit failed, or a file is damaged and must not be left out.
        """
        workspace, task, ledger = self.workspace, self.task, self._begin()
        if workspace.is_complete():  # other agents have finished it meanwhile
            return task.found(workspace, self.events.on_compare)
        reused = ledger.reused(task.resources.num_workers)
        task.begin(workspace)
        with ThreadPoolExecutor(1, "calibration") as background:
            self.exam = background.submit(task.examine, self._engines)
            fingerprint = background.submit(task.fingerprint)
            engine = self._run_units()
        if workspace.is_complete():
            return task.found(workspace, self.events.on_compare)
        if not ledger.is_complete():
            return Departure(workspace.location, self.board.snapshot(), reused)
        self.board.refresh(force=True)  # all units are done
        return task.finish(
            Ended(
                workspace=workspace,
                ledger=ledger,
                board=self.board,
                reused=reused,
                fingerprint=fingerprint.result(),
                record=lambda: self._record(engine),
            )
        )

    def _begin(self) -> Ledger:
        """Agree on the start, and read what is done."""
        workspace, task = self.workspace, self.task
        workspace.create(alone=self.alone)
        agree_on_start(workspace, task, self.events.on_compare)
        self.ledger = Ledger(workspace.store, task.items, task.job.limit, task.versions_for)
        if self.alone:
            self.ledger.read_all()
        self.board = ProgressBoard(
            task.num_bytes, task.token_bytes, [self.events.on_progress], ratio=task.disk_ratio
        )
        self.board.resume(self.ledger.receipts.values())
        return self.ledger

    def _run_units(self) -> str:
        """Run the units that this agent claims, and return their engine.

        If calibration rejects an engine, the next one takes over. Returns "" if other agents took
        this agent for dead, published the dataset, and removed its working files.
        """
        on_engine = self.events.on_engine

        def tell(name: str, veto: CalibrationVetoError) -> None:
            on_engine(name, f"vetoed: {veto.why}")

        try:
            with self._presence() as claims:

                def run_all(name: str) -> str:
                    on_engine(name, "")
                    self._run_all(self._phase(name), claims)
                    return name

                return with_first_exact(self._engines, run_all, tell)
        except StorageError:
            if not self.workspace.is_complete():
                raise
        return ""

    @property
    def _engines(self) -> tuple[str, ...]:
        """The engines to try: that of earlier attempts, if they have results."""
        return (self.ledger.engine,) if self.ledger.engine else self.task.job.engines

    @contextlib.contextmanager
    def _presence(self) -> Iterator[Claims]:
        """Register as one of the agents while the block runs."""
        task, board, limits = self.task, self.board, self.task.recipe.limits
        attempt = Attempt(
            started=time_now(),
            workers=task.resources.num_workers,
            memory_bytes=task.resources.memory_bytes,
            recycled_workers=0,
            max_bad=limits.max_bad,
            on_bad_file=limits.on_bad_file,
        )
        store, keys = self.workspace.store, [item.key for item in task.items]
        seconds = beat_seconds_for(self.share, task.num_bytes, task.recipe.resources.patience)
        known = present(
            *(store, keys, attempt, versions()),
            share=self.share,
            beat_seconds=seconds,
            alone=self.alone,
        )
        with known as (claims, beat):
            claims.refresh({item.key for item in task.items if self.ledger.is_finished(item)})
            board.listeners.append(lambda shot: beat.tell(shot, board, claims.mine))
            yield claims

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
            audits=task.resources.num_workers > AUDITED_BY_MAIN and not task.job.is_slow,
            scratch=str(workspace.scratch.resolve()),
            out=workspace.location if workspace.bucket else str(workspace.folder.resolve()),
            tokenizer_dir=str((workspace.folder / "tokenizer").resolve()),
            tokenizer_source=task.tokenizer_source,
        )
        return Phase(setup, task.sources, self.exam, task.encoder, task.local_engine)

    def _run_all(self, phase: Phase, claims: Claims | None) -> None:
        """Run all units without a receipt; the unit that reaches a limit runs up to the limit.

        Damaged files are quarantined or raise an error at the end, unless they come after a limit.
        Units with lost files run again, whoever claimed them. Work that other agents hold is left
        to them, unless this agent waits for the others.
        """
        ledger = self.ledger
        while not (ledger.is_complete() or self.workspace.is_complete()):
            crossed = ledger.crossing
            session = self._limited(phase, *crossed) if crossed else self._unlimited(phase, claims)
            session.run()
            behind_limit = ledger.is_complete() or (ledger.crossing and not crossed)
            if session.damaged and not behind_limit:
                if crossed or self.task.recipe.limits.on_bad_file == "fail":
                    raise _damaged_files(list(session.damaged.values()))
                ledger.quarantine(session.damaged)
            elif not ledger.is_complete() and ledger.crossing is None:
                if claims and claims.parked:
                    raise next(iter(claims.parked.values()))
                return  # other agents hold the rest
        if claims:
            claims.heed_others()
        ledger.read_all()
        if not ledger.is_complete() and not self.workspace.is_complete():
            self._run_all(phase, None)  # files were lost

    def _unlimited(self, phase: Phase, claims: Claims | None) -> Session:
        """Return the session for all units without a receipt."""
        ledger, items = self.ledger, self.ledger.sound_items()
        left = [item for item in items if not ledger.is_finished(item)]
        if left and all(isinstance(item, Unit) for item in left):
            phase = replace(phase, max_units=len(left))
        queue = WorkQueue(
            self.task,
            self.workspace,
            ledger,
            items,
            lambda key: key not in ledger.finished,
            claims,
        )
        in_threads = self.task.resources.num_workers > 1
        return Session(self.executor, phase, queue, ledger, self.board, in_threads=in_threads)

    def _limited(self, phase: Phase, key: str, limit: Limit) -> Session:
        """Return the session for the unit that reaches a limit, up to the limit."""
        items = [item for item in self.ledger.items if item.holds(key)]
        queue = WorkQueue(
            self.task, self.workspace, self.ledger, items, lambda wanted: wanted == key
        )
        phase = replace(phase, max_units=1, is_repeated=True)
        return Session(self.executor, phase, queue, self.ledger, self.board, limit)

    def _record(self, engine: str) -> Run:
        """Return the record of how the output was made."""
        task, receipts = self.task, self.ledger.final_receipts()
        seconds = {**self.board.seconds, "wall": time.monotonic() - self.started}
        return Run(
            recipe=msgspec.to_builtins(task.recipe),
            identity=msgspec.to_builtins(task.identity()),
            inputs=[source.where for source in task.sources],
            host=socket.gethostname(),
            versions=versions(),
            engine=engine,
            audited_documents=sum(receipt.audited for receipt in receipts),
            audit=audit_of(receipts),
            calibrated_texts=len(self.exam.result().texts),
            attempts=attempts_of(self.workspace.store),
            seconds={name: round(spent, 3) for name, spent in seconds.items()},
            peak_bytes=self.board.peak_bytes,
            row_digests=describe_rows(receipts),
        )


def audit_of(receipts: Sequence[Receipt]) -> Audit | UnsetType:
    """Summarize the audits of all units, if all used the same audit share."""
    shares = {receipt.audit_share for receipt in receipts}
    drawn = sum(receipt.audit_drawn or 0 for receipt in receipts)
    share = shares.pop() if len(shares) == 1 else UNSET
    if share is UNSET or not drawn:
        return UNSET
    is_all = drawn == sum(receipt.documents for receipt in receipts)
    rate = 0.0 if is_all else round(excluded_error_rate(drawn), 9)
    return Audit(share=share, drawn=drawn, excluded_error_rate=rate)


def _damaged_files(errors: list[TokenmillError]) -> TokenmillError:
    if len(errors) == 1:
        return errors[0]
    places = "; ".join(f"{error.where}: {error.why}" for error in errors)
    return DataError(f"{len(errors)} input files are damaged", why=places, hint=errors[0].hint)
