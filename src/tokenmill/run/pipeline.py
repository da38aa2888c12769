"""The main path of every run: builds, counts and measurements.

resolve   load the tokenizer and list the inputs; nothing is downloaded or written
find      an output that is complete is not made again; one of other inputs is refused
prepare   download inputs, check their fields, cut them into units, sample documents
lock      find the place to write to, and keep others away
agree     store what decides the output, or compare it with what an earlier attempt stored
read      units with a valid receipt are done
run       encode, count or measure the other units
finish    check that the counts balance, and complete the output

    out/                      the output, or the old one until the new one is complete
    .out.unfinished/new/      the new one, which keeps `work/job.json` until it has the name
    .out.unfinished/replaced/ the old one, between two renames if names cannot be exchanged

A kill just after the exchange leaves the old output in `new/`, without `work/job.json`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tokenmill.core.errors import (
    InputChangedError,
    OutputConflictError,
    UserError,
    VerificationError,
)
from tokenmill.core.options import Overwrite
from tokenmill.core.records import Advance
from tokenmill.read.source import Access, Source
from tokenmill.read.units import decompressed_bytes
from tokenmill.run.agreement import OnCompare, agree_on_start
from tokenmill.run.executor import Executor
from tokenmill.run.launch import AgentShare
from tokenmill.run.machine import choose_resources
from tokenmill.run.metrics import writing_metrics
from tokenmill.run.pool import WorkerPool
from tokenmill.run.recipe.options import CountRecipe, MeasureRecipe, Recipe
from tokenmill.run.running import Running
from tokenmill.run.task import AnyRecipe, Departure, RunEvents, Task, access_of
from tokenmill.run.tasks.encode import BuildReport, EncodeTask
from tokenmill.run.workspace import (
    DATASET_OUTPUT,
    JOB_NAME,
    How,
    OutputKind,
    Workspace,
    locked,
    open_workspace,
)
from tokenmill.store.files import refuse_fixed, remove_folder, storage_errors
from tokenmill.store.objects.opening import refuse_unsafe

if TYPE_CHECKING:
    from tokenmill.encode.measure.tallies import Tally
    from tokenmill.encode.words.splits import Split
    from tokenmill.run.progress import Snapshot
    from tokenmill.run.tasks.count import CountReport, CountTask
    from tokenmill.run.tasks.measure import MeasuredTokenizer

R = TypeVar("R")

BuildEvents = RunEvents[EncodeTask]
"""Callbacks of a build. All are optional."""
CountEvents = RunEvents["CountTask"]
"""Callbacks of a count. All are optional."""


def counting_events(advance: Advance) -> CountEvents:
    """Callbacks of a count that is the first stage, called "counting", of something else."""

    def tell(shot: Snapshot) -> None:
        is_read = shot.done_bytes >= shot.total_bytes
        advance("merging counts" if is_read else "counting", shot.done_bytes, shot.total_bytes)

    return CountEvents(on_progress=tell)


Resolve = Callable[[Access, Executor], Task[R]]
"""Resolves a task. Local workers of the executor start in the meantime."""


def build(
    recipe: Recipe,
    *,
    tokenizer: object = None,
    overwrite: Overwrite = False,
    events: BuildEvents | None = None,
    executor: Executor | None = None,
    share: AgentShare | None = None,
) -> BuildReport | Departure:
    """Build a dataset, or resume a build: units with a receipt are not run again.

    Args:
        recipe: all options of the build.
        tokenizer: a tokenizer object to use instead of the tokenizer that the recipe names.
        overwrite: replace a dataset or an unfinished build in the output folder. A dataset stays
            until the new one is complete, and an interrupted replacement resumes; "first" removes
            it at the start, and begins anew.
        events: callbacks.
        executor: where units run. By default, in processes on this machine.
        share: makes this process one of several agents.

    Returns:
        What was built. An agent gets a `Departure` if other agents hold all remaining work.

    Raises:
        TokenmillError: see `tokenmill.core.errors`. The same call resumes the build.
    """
    events = events or BuildEvents()

    def resolve(access: Access, executor: Executor) -> EncodeTask:
        return EncodeTask.resolve(recipe, tokenizer, access, executor)

    with writing_metrics(events, recipe.resources.metrics, "build", share) as events:
        report = _run(resolve, recipe, DATASET_OUTPUT, events, overwrite, executor, share)
        if recipe.pack.sequence_length is None or isinstance(report, Departure):
            return report
        if share is None or report.snapshot is not None:  # only the agent that published packs
            from tokenmill.packing.planning import pack_subsets
            from tokenmill.store.temporary import dataset_at

            with dataset_at(report.out) as dataset:
                plans = pack_subsets(dataset, recipe.pack, events.on_pack)
                report = replace(report, plans=tuple(plans))
        return report


def begin(recipe: Recipe) -> str:
    """Store the start of a build, and leave the work to agents.

    Returns:
        The name of the job, or "" if the dataset is already complete. Agents find the name in the
        output and compare it with the environment variable TOKENMILL_JOB.

    Raises:
        TokenmillError: the build would be refused.
    """
    events = BuildEvents()
    access = access_of(recipe.read, recipe.resources, events.on_download)
    task = EncodeTask.resolve(recipe, None, access)
    with open_workspace(recipe.out) as workspace, locked(workspace, "either") as alone:
        if workspace.is_complete():
            task.found(workspace, events.on_compare)
            return ""
        if alone:
            workspace.make_room(overwrite=False)
        return agree_on_start(workspace, task, events.on_compare)


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
    from tokenmill.run.tasks.count import COUNTS_OUTPUT, CountReport, CountTask  # loads a compiler

    def resolve(access: Access, executor: Executor) -> CountTask:
        return CountTask.resolve(recipe, sources, access, executor)

    with writing_metrics(events or CountEvents(), recipe.resources.metrics, "count") as events:
        report = _run(resolve, recipe, COUNTS_OUTPUT, events, overwrite, executor)
    assert isinstance(report, CountReport)
    return report


def measure(
    tokenizer: MeasuredTokenizer,
    recipe: MeasureRecipe,
    advance: Advance = lambda stage, done, total: None,
) -> Tally:
    """Measure how a tokenizer encodes all documents. The number of workers changes nothing.

    Raises:
        DataError: an input is damaged.
        EngineError: a text cannot be encoded, or no engine matches the reference.
        TokenmillError: see `tokenmill.core.errors`.
    """
    from tokenmill.run.tasks.measure import SMALL_BYTES, MeasureTask

    resources = recipe.resources
    small = sum(map(decompressed_bytes, recipe.sources)) <= SMALL_BYTES
    if small and resources.workers is None:
        resources = msgspec.structs.replace(resources, workers=1)
    events = RunEvents[MeasureTask](
        on_progress=lambda shot: advance("documents", shot.done_bytes, shot.total_bytes)
    )
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        placed = msgspec.structs.replace(recipe, out=folder, resources=resources)

        def resolve(_: Access, executor: Executor) -> MeasureTask:
            return MeasureTask.resolve(placed, tokenizer, executor)

        tally = _run(resolve, placed, DATASET_OUTPUT, events)
        assert not isinstance(tally, Departure)
        return tally


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
    from tokenmill.run.tasks.count import COUNTS_OUTPUT, CountReport  # loads a compiler
    from tokenmill.store.counts.folder import merge_counts, open_counts

    paths = [Path(name).resolve() for name in inputs]
    if Path(out).resolve() in paths:
        why = "merged counts need a new folder"
        raise UserError("an input is also the output folder", where=out, why=why)
    for name, path in zip(inputs, paths, strict=True):
        if paths.count(path) > 1:
            why = "its words would be counted twice"
            raise UserError("an input is named twice", where=name, why=why)
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


def _run(
    resolve: Resolve[R],
    recipe: AnyRecipe,
    output: OutputKind,
    events: RunEvents[Any],
    overwrite: Overwrite = False,
    executor: Executor | None = None,
    share: AgentShare | None = None,
) -> R | Departure:
    """Go the way from options to the result; see the top of this module."""
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(WorkerPool(choose_resources(recipe.resources)))
        scratch = recipe.resources.scratch
        workspace = stack.enter_context(open_workspace(recipe.out, output, scratch=scratch))
        if overwrite and workspace.bucket is not None:
            raise UserError(
                "--overwrite works for folders only",
                where=workspace.location,
                why="agents on other machines may be writing to the bucket, and it has no lock",
                hint="choose another prefix, or remove what is there with tokenmill delete",
            )
        access = access_of(recipe.read, recipe.resources, events.on_download)
        task = resolve(access, executor)
        lock: How = "together" if share else "either" if task.takes_agents else "alone"
        lock = "alone" if overwrite else lock
        if not overwrite and (found := _found_before(workspace, task, lock, events.on_compare)):
            return found
        in_process = task.resources.num_workers == 1 and isinstance(executor, WorkerPool)
        task = task.prepared(access, in_process=in_process)
        place, alone = stack.enter_context(room_for(task, workspace, overwrite, lock))
        if not alone:
            refuse_unsafe(place.store)
        if place.is_complete():  # by another process, or by one that was killed just afterwards
            place.take_name()
            return task.found(workspace, events.on_compare)
        events.on_prepared(task)
        return Running(place, task, events, executor, share, alone).run()


def _found_before(workspace: Workspace, task: Task[R], how: How, on_compare: OnCompare) -> R | None:
    """Return the result of a finished output, or None if there is work left.

    Raises:
        InputChangedError: the output holds an unfinished run with other inputs or options.
    """
    if not (workspace.is_complete() or workspace.is_begun()):
        return None
    with locked(workspace, how):
        if workspace.is_complete():
            return task.found(workspace, on_compare)
        agree_on_start(workspace, task, on_compare)
    return None


@contextmanager
def room_for(
    task: Task[Any] | None,
    workspace: Workspace,
    overwrite: Overwrite,
    how: How = "alone",
) -> Iterator[tuple[Workspace, bool]]:
    """Lock the output and make room for a run that begins with `task`; None cannot be resumed.

    Yields where the run writes, and whether no other agent can be writing there. A complete output
    is replaced by `Workspace.take_name`, unless it is to be removed first.

    Raises:
        OutputConflictError: another run holds the lock, or the output holds files of someone else.
    """
    beside = workspace.beside() if overwrite else None
    if beside and overwrite != "first" and workspace.is_complete():
        with _room_beside(task, workspace, beside):
            yield beside, True
        return
    with locked(workspace, how) as alone:
        if beside and beside.folder.parent.is_dir():
            with locked(beside), storage_errors("remove an unfinished output", beside.folder):
                remove_folder(beside.folder.parent)
        if alone:
            workspace.make_room(overwrite=bool(overwrite))
        yield workspace, alone


@contextmanager
def _room_beside(task: Task[Any] | None, old: Workspace, new: Workspace) -> Iterator[None]:
    """Lock a complete output and the folder beside it. A run that has not begun leaves nothing."""
    hint = "run it from another folder, or remove the old output with --overwrite=first"
    refuse_fixed(Path(os.path.realpath(old.folder)), hint)
    with locked(new):
        try:
            with locked(old):
                old.refuse_strangers()
                old.store.remove([JOB_NAME])  # after the exchange, only the new output may have it
                if not _can_resume(new, task):
                    new.remove_output()
                yield
        finally:
            with contextlib.suppress(OSError):
                if new.folder.is_dir() and not new.is_begun():
                    remove_folder(new.folder.parent)


def _can_resume(new: Workspace, task: Task[Any] | None) -> bool:
    if task is not None and new.is_begun():
        with contextlib.suppress(InputChangedError, OutputConflictError, VerificationError):
            agree_on_start(new, task, lambda source: None)
            return True
    return False
