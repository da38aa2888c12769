"""What is known while units run: receipts, failures, calibration and audits, whoever runs them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import Reference
from tokenmill.encode.engine_ranking import REFERENCE
from tokenmill.encode.exactness import Exam, audit
from tokenmill.errors import DamagedInputError, TokenmillError
from tokenmill.run.commit.receipts import Receipt, write_receipt
from tokenmill.run.commit.workspace import Workspace
from tokenmill.run.local.messages import Done
from tokenmill.run.progress import ProgressBoard
from tokenmill.run.units.assignment import Limit, Setup
from tokenmill.run.work import Work, WorkQueue


@dataclass(slots=True)
class Session:
    """One phase of a build: these tasks, this engine."""

    workspace: Workspace
    setup: Setup
    reference: Reference
    exam: Future[Exam]
    board: ProgressBoard
    receipts: dict[str, Receipt]
    calibrated: Callable[[], None]
    """Called before the first receipt."""
    on_receipt: Callable[[WorkQueue], None] = lambda queue: None
    watched: bool = False
    """Whether the tokenizer has unknown steps. Its engine never encodes documents in this process;
    only calibration texts and audit samples do, after the trial."""
    excluded: list[int] = field(default_factory=list)
    limit: Limit = field(default_factory=Limit)
    damaged: dict[int, TokenmillError] = field(default_factory=dict)
    recycled_workers: int = 0
    """Worker processes that were replaced because their memory had grown."""

    def finish(self, done: Done, task: Work, queue: WorkQueue) -> None:
        """Audit a finished unit and write its receipt.

        Raises:
            EngineError: the reference disagrees on a document.
        """
        if done.audit_texts:
            name = self.reference.name if self.setup.engine == REFERENCE else self.setup.engine
            reference = Encoder(self.reference, self.setup.largest_id)
            audit(name, done.audit_texts, done.audit_ids, reference)
        self.calibrated()
        write_receipt(self.workspace.receipts, done.receipt)
        self.receipts[done.receipt.key] = done.receipt
        self.board.finish(task.unit, done.receipt, done.seconds)
        queue.release(task)
        self.on_receipt(queue)

    def fail(self, error: TokenmillError, task: Work, source: int | None, queue: WorkQueue) -> None:
        """A damaged file ends its own unit; any other error ends the run."""
        if not isinstance(error, DamagedInputError) or source is None:
            raise error
        self.damaged[source] = error
        self.board.drop(task.unit)
        with contextlib.suppress(FileNotFoundError):
            queue.release(task)

    def collect_feed_failures(self, queue: WorkQueue) -> None:
        """Failures of streams: as those of units."""
        while queue.failures:
            source, error = queue.failures.pop()
            if not isinstance(error, DamagedInputError):
                raise error
            self.damaged[source] = error
