"""The main path of counting: turn a corpus into a folder of word counts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Encoder
from tokenmill.encode.exactness import Exam
from tokenmill.encode.split_file import as_tokenizer_file
from tokenmill.encode.splitters import LIBRARY, Splitter, load_splitter
from tokenmill.encode.words.splits import Split
from tokenmill.read.source import Source
from tokenmill.read.units import choose_unit_bytes, count_units
from tokenmill.run.commit.counts import (
    COUNTS_OUTPUT,
    describe_counts,
    judge_counts,
    merge_runs,
)
from tokenmill.run.commit.ledger import Ledger, Reused
from tokenmill.run.commit.publish import rejected_files, sweep
from tokenmill.run.commit.workspace import Overwrite, Workspace, open_workspace
from tokenmill.run.events import RunEvents
from tokenmill.run.executor import Executor
from tokenmill.run.job import CheckedTask, Job, board_for
from tokenmill.run.local.processes import LocalProcesses
from tokenmill.run.machine.resources import choose_resources
from tokenmill.run.progress import ProgressBoard, Snapshot
from tokenmill.run.recipe.options import CountRecipe
from tokenmill.run.start.agreement import Start, agree_on_finished, agree_on_start, found_before
from tokenmill.run.start.counting import (
    CountPreparation,
    count_identity,
    prepare_count,
    resolve_count,
    start_of_count,
)
from tokenmill.run.start.inputs import access_of
from tokenmill.run.start.room import room_for
from tokenmill.run.units.assignment import Limit
from tokenmill.run.units.tasks import LARGEST_HASH, CountTask
from tokenmill.store.canonical import write_sealed
from tokenmill.store.counts.folder import CountsFolder, merge_counts, open_counts
from tokenmill.store.manifest import RUN_NAME, Run

CountEvents = RunEvents[CountPreparation]
"""Callbacks of a count. All are optional."""


@dataclass(frozen=True, slots=True)
class CountReport:
    """The result of counting words."""

    counts: CountsFolder
    run: Run | None = None
    """How the words were counted. None if counts were added up."""
    snapshot: Snapshot | None = None
    """The last progress. None if the counts were already complete, or were added up."""
    reused: Reused | None = None
    """Work reused from earlier attempts."""
    remarks: tuple[str, ...] = ()
    """Remarks on complete counts: libraries that now have another version."""


def count(
    recipe: CountRecipe,
    *,
    sources: Sequence[Source] | None = None,
    overwrite: Overwrite = False,
    events: CountEvents | None = None,
    executor: Executor | None = None,
) -> CountReport:
    """Count the words of a corpus, or resume a count: units with a receipt are not run again.

    Args:
        recipe: all options of the count.
        sources: the files that the recipe's inputs name, if the caller has already listed them.
        overwrite: replace what the output folder holds, as for a build.
        events: callbacks.
        executor: where units run. By default, in processes on this machine.

    Raises:
        TokenmillError: see `tokenmill.core.errors`. The same call resumes the count.
    """
    events = events or CountEvents()
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(LocalProcesses(choose_resources(recipe.resources)))
        workspace = stack.enter_context(open_workspace(recipe.out, COUNTS_OUTPUT))
        return _count(workspace, recipe, sources, overwrite, events, executor)


def _count(
    workspace: Workspace,
    recipe: CountRecipe,
    sources: Sequence[Source] | None,
    overwrite: Overwrite,
    events: CountEvents,
    executor: Executor,
) -> CountReport:
    access = access_of(recipe.read, recipe.resources, events.on_download)
    resolution = resolve_count(recipe, sources, access)
    if isinstance(executor, LocalProcesses):
        unit_bytes = choose_unit_bytes(resolution.sources)
        executor.expect(count_units(resolution.sources, resolution.fields, unit_bytes))

    def start() -> Start:
        return start_of_count(resolution, events.on_compare)

    def complete(start: Start) -> CountReport:
        return _already_complete(workspace, start)

    if not overwrite and (finished := found_before(workspace, start, complete, "alone")):
        return finished
    resources = choose_resources(recipe.resources)
    in_process = resources.num_workers == 1 and isinstance(executor, LocalProcesses)
    prepared = prepare_count(resolution, access, resources, in_process=in_process)
    with room_for(start, workspace, overwrite) as (place, _):
        if place.is_complete():  # by another process, or by one that was killed just afterwards
            place.take_name()
            return complete(start())
        events.on_prepared(prepared)
        return _Count(place, prepared, events, executor).run()


def merge(
    inputs: Sequence[str],
    out: str,
    *,
    split: Split | None = None,
    min_count: int = 1,
    overwrite: Overwrite = False,
) -> CountReport:
    """Add up folders of counts.

    Args:
        inputs: folders of counts.
        out: the output folder.
        split: the split that all counts must have been made with. None accepts any.
        min_count: leave out words that occur less often in their group.
        overwrite: replace what the output folder holds.

    Raises:
        UserError: the counts were made with different splits or groups.
        OutputConflictError: the output folder already holds counts.
        TokenmillError: see `tokenmill.core.errors`.
    """
    if any(Path(name).resolve() == Path(out).resolve() for name in inputs):
        why = "merged counts need a new folder"
        raise UserError("an input is also the output folder", where=out, why=why)
    paths = [Path(name).resolve() for name in inputs]
    if repeated := [
        name for name, path in zip(inputs, paths, strict=True) if paths.count(path) > 1
    ]:
        why = "its words would be counted twice"
        raise UserError("an input is named twice", where=repeated[0], why=why)
    folders = [open_counts(name) for name in inputs]
    found = folders[0].split
    if split and split.steps != found.steps:
        raise UserError(
            "the words were counted with another split",
            where=str(folders[0].folder),
            why=f"their split is {found.name or 'custom'}, --split is {split.name or 'custom'}",
            hint="omit --split, or count again",
        )
    with (
        open_workspace(out, COUNTS_OUTPUT) as workspace,
        room_for(None, workspace, overwrite) as (place, _),
    ):
        if not overwrite and (workspace.is_complete() or workspace.is_begun()):
            what = "word counts" if workspace.is_complete() else "an unfinished count"
            hint = "choose another folder, or replace them with --overwrite"
            raise OutputConflictError(f"the output folder holds {what}", where=out, hint=hint)
        place.remove_output()
        merge_counts(folders, place.folder, min_count)
        return CountReport(open_counts(place.take_name().folder))


def _already_complete(workspace: Workspace, start: Start) -> CountReport:
    counts = open_counts(workspace.folder)
    limited = counts.manifest.policies.get("max_documents") is not None
    run, remarks = agree_on_finished(workspace, start, counts.manifest.sources, limited=limited)
    sweep(workspace)
    return CountReport(counts, run, None, remarks=tuple(remarks))


@dataclass(slots=True)
class _Count:
    """One attempt at counting."""

    workspace: Workspace
    prepared: CountPreparation
    events: CountEvents
    executor: Executor
    started: float = field(default_factory=time.monotonic)
    ledger: Ledger = field(init=False)
    board: ProgressBoard = field(init=False)

    def run(self) -> CountReport:
        """Run all stages in order."""
        prepared, recipe = self.prepared, self.prepared.recipe
        self.workspace.create()
        start = start_of_count(prepared, self.events.on_compare)
        agree_on_start(self.workspace, start)
        limit = Limit(documents=recipe.read.max_documents)
        self.ledger = Ledger(self.workspace.store, prepared.items, limit, start.versions_for)
        self.ledger.read_all()
        reused = self.ledger.reused(prepared.resources.num_workers)
        self.board = board_for(
            self.ledger, prepared.num_bytes, 0, self.events.on_progress, self.executor
        )
        library = load_splitter(prepared.split, LIBRARY, 0)
        with ThreadPoolExecutor(1, "calibration") as background:
            exam = background.submit(_examine, library, prepared.sample)
            job = self._job(exam, library)
            engine = job.run(prepared.splitters, self.events.on_engine)
        run = self._publish(job, engine, len(exam.result().texts))
        self.board.refresh(force=True)
        finished = self.workspace.take_name()
        counts = open_counts(finished.folder)
        sweep(finished, (file.name for file in rejected_files(self.ledger.final_receipts())))
        return CountReport(counts, run, self.board.snapshot(), reused)

    def _job(self, exam: Future[Exam], library: Splitter) -> Job:
        """Return the job that counts everything without a receipt."""
        prepared, reference = self.prepared, Encoder(library, LARGEST_HASH)
        task = CountTask(
            split=prepared.split,
            groups=prepared.groups,
            column=prepared.fields.keep[0] if prepared.fields.keep else "",
            table_bytes=prepared.resources.table_bytes,
        )
        return Job(
            workspace=self.workspace,
            sources=prepared.sources,
            fields=prepared.fields,
            resources=prepared.resources,
            limits=prepared.recipe.limits,
            executor=self.executor,
            ledger=self.ledger,
            board=self.board,
            checked=CheckedTask(task, as_tokenizer_file(prepared.split), exam, reference),
        )

    def _publish(self, job: Job, engine: str, num_calibrated: int) -> Run:
        """Merge the sorted runs of all units, which completes the counts."""
        prepared, recipe = self.prepared, self.prepared.recipe
        receipts = self.ledger.final_receipts()
        description = describe_counts(
            prepared.split,
            (recipe.by or "").removesuffix("?"),
            recipe.min_count,
            prepared.policies,
            prepared.sources,
            receipts,
            self.ledger.quarantined,
        )
        judge_counts(self.workspace, description, receipts, recipe.limits.max_bad)
        wall = time.monotonic() - self.started
        run = job.record(recipe, count_identity(prepared), engine, num_calibrated, wall)
        write_sealed(self.workspace.folder / RUN_NAME, run)
        merge_runs(self.workspace, description, receipts)
        return run


def _examine(library: Splitter, sample: Sequence[str]) -> Exam:
    """Split the fixed calibration strings and some documents with the library."""
    texts = [*adversarial_texts(()), *sample]
    return Exam(texts, Encoder(library, LARGEST_HASH).encode(texts))
